"""Layouts of a batch's tokens: padded in a model, packed one after another on the wire."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qpriv.models.decoder.sequences import Side, TokenSequences, compact_positions

from .transcript import Span


@dataclass(frozen=True)
class TokenLayout:
    """The padding of tokens that cross without it.

    Args:
        lengths: Real tokens of each sample, ``[B]``.
        side: Side of the padding.
        positions: Positions of the real tokens, one sample after another, ``[sum T_i]``; None if
            they are 0, 1, 2, ... in every sample.

    >>> layout = TokenLayout(torch.tensor([1, 3]), "left")
    >>> layout.mask.tolist(), layout.position_ids.tolist()
    ([[0, 0, 1], [1, 1, 1]], [[0, 0, 0], [0, 1, 2]])
    >>> layout.unpack(layout.pack(torch.ones(2, 3, 5))).sum(dim=2).tolist()
    [[0.0, 0.0, 5.0], [5.0, 5.0, 5.0]]
    """

    lengths: Tensor
    side: Side = "right"
    positions: Tensor | None = None

    @classmethod
    def of(cls, sequences: TokenSequences) -> "TokenLayout":
        """Return the layout of a model's input."""
        return cls.read(sequences.attention_mask.bool(), sequences.position_ids)

    @classmethod
    def read(cls, real: Tensor, positions: Tensor | None) -> "TokenLayout":
        """Return the layout of a padded batch.

        Args:
            real: True for real tokens, ``[B, S]`` bool.
            positions: Positions of all columns, ``[B, S]``; None if they have no gaps.
        """
        side: Side = "right" if bool(real[:, 0].all()) else "left"
        lengths = real.sum(dim=1)
        if positions is None:
            return cls(lengths, side)
        told, counted = positions.expand_as(real)[real], compact_positions(real.long(), side)[real]
        return cls(lengths, side, None if torch.equal(told, counted) else told)

    @property
    def mask(self) -> Tensor:
        """Return the attention mask, ``[B, S]``: 1 for real tokens."""
        columns = torch.arange(int(self.lengths.max()), device=self.lengths.device)
        if self.side == "left":
            columns = columns.flip(0)
        return (columns < self.lengths[:, None]).long()

    @property
    def position_ids(self) -> Tensor:
        """Return the positions for the rotary embedding, ``[B, S]``."""
        counted = compact_positions(self.mask, self.side)
        if self.positions is None:
            return counted
        return torch.zeros_like(counted).masked_scatter(self.mask.bool(), self.positions)

    def longer(self) -> "TokenLayout":
        """Return the layout after one more token in every row.

        >>> layout = TokenLayout(torch.tensor([1, 2]), "left", torch.tensor([3, 0, 5])).longer()
        >>> layout.position_ids.tolist()
        [[0, 3, 4], [0, 5, 6]]
        """
        lengths = self.lengths + 1
        if self.positions is None:
            return TokenLayout(lengths, self.side)
        rows = torch.split(self.positions, self.lengths.tolist())
        counted = [torch.cat((row, row[-1:] + 1)) for row in rows]
        return TokenLayout(lengths, self.side, torch.cat(counted))

    def pack(self, padded: Tensor) -> Tensor:
        """Return the real tokens of ``[B, S, ...]`` as ``[sum T_i, ...]``."""
        return padded[self.mask.bool()]

    def unpack(self, rows: Tensor, filler: int = 0) -> Tensor:
        """Return tokens ``[sum T_i, ...]`` as a padded batch ``[B, S, ...]``."""
        mask = self.mask.bool()
        padded = rows.new_full((*mask.shape, *rows.shape[1:]), filler)
        return padded.index_put((mask,), rows)


@dataclass(frozen=True)
class PassingRows:
    """Positions of real tokens and images in the padded batch of the current pass.

    Args:
        real: True for real tokens, ``[B, S]`` bool.
        spans: Span of the image among the real tokens of each row.
        positions: Positions of all columns, ``[B, S]``; None if they have no gaps.
        prefill: False for a single generated token after a prompt.
    """

    real: Tensor
    spans: tuple[Span, ...]
    positions: Tensor | None
    prefill: bool

    @classmethod
    def read(cls, given: Mapping[str, Any], image_token: int) -> "PassingRows":
        """Return the layout of a model call.

        Args:
            given: Arguments of the call, by name.
            image_token: Id of a visual token.
        """
        tokens: Tensor = given["input_ids"]
        mask, cache = given.get("attention_mask"), given.get("cache")
        # use the cache, because a batch without padding is generated without a mask
        prefill = cache is None or cache.get_seq_length() == 0
        real = torch.ones_like(tokens, dtype=torch.bool)
        if mask is not None:
            real = mask[:, -tokens.shape[1] :].bool()
        spans = image_spans(tokens, real, image_token)
        return cls(real, spans, given.get("position_ids"), prefill)

    @property
    def packed(self) -> TokenLayout:
        """Return the layout of the real tokens."""
        return TokenLayout.read(self.real, self.positions)

    def left(self, kept: Sequence[Tensor]) -> "PassingRows":
        """Return the layout after tokens were dropped.

        Args:
            kept: Indices of the remaining real tokens of each row, ``[T_i]`` ascending.
        """
        whole = self.packed
        lengths = torch.tensor([len(row) for row in kept], device=self.real.device)
        positions = None
        if whole.positions is not None:
            parts = torch.split(whole.positions, whole.lengths.tolist())
            positions = torch.cat(
                [own[row.to(own.device)] for own, row in zip(parts, kept, strict=True)]
            )
        left = TokenLayout(lengths, whole.side, positions)
        spans = tuple(
            (int((row < start).sum()), int((row < stop).sum()))
            for row, (start, stop) in zip(kept, self.spans, strict=True)
        )
        gapped = None if positions is None else left.position_ids
        return PassingRows(left.mask.bool(), spans, gapped, self.prefill)


def image_spans(tokens: Tensor, real: Tensor, image_token: int) -> tuple[Span, ...]:
    """Return the span of the image among the real tokens of each row; (0, 0) without an image.

    Args:
        tokens: Token ids, ``[B, S]``.
        real: True for real tokens, False for padding, ``[B, S]`` bool.
        image_token: Id of a visual token.
    """
    return tuple(
        _image_span(row[keep] == image_token) for row, keep in zip(tokens, real, strict=True)
    )


def _image_span(is_image: Tensor) -> Span:
    places = is_image.nonzero()
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
