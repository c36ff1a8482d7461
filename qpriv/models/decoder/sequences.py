"""Token sequences for the language model after visual tokens were removed.

LLaVA holds one ``<image>`` id a patch in ``input_ids`` and scatters the projected patches over
them. Pruning therefore shortens that run and hands over as many features; the model class stays
the stock one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from qpriv.errors import ModelError

IGNORED = -100
"""Label of the positions that carry no loss, as in `torch.nn.CrossEntropyLoss`."""

Side = Literal["left", "right"]
Positions = Literal["compact", "original"]


class TokenSelection(Protocol):
    """The part of a pruning decision that the language model's input depends on."""

    @property
    def kept(self) -> tuple[Tensor, ...]:
        """Return for each sample the sorted indices of the kept patches, ``[k_b]``."""
        ...

    @property
    def merged(self) -> tuple[Tensor, ...] | None:
        """Return the features that replace the kept patches, each ``[t_b, D]``, or None."""
        ...

    @property
    def mixing(self) -> tuple[Tensor, ...] | None:
        """Return with which weights patches enter each of these, each ``[t_b, N]``, or None."""
        ...


@dataclass(frozen=True)
class TokenSequences:
    """Input of the language model.

    Args:
        input_ids: Token ids with one image id for each kept patch, ``[B, S]``.
        attention_mask: 1 where ``input_ids`` holds a token, ``[B, S]``.
        position_ids: Positions for the rotary embedding, ``[B, S]``.
        labels: Gold ids, -100 where there is no loss, ``[B, S]``.
        image_spans: First and one past the last column of each row's image tokens.
        side: Where the rows are padded.
    """

    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor
    labels: Tensor
    image_spans: tuple[tuple[int, int], ...]
    side: Side = "right"

    @property
    def width(self) -> int:
        """Return the length ``S`` of the padded rows."""
        return self.input_ids.shape[1]

    @property
    def visual_counts(self) -> Tensor:
        """Return the number of image tokens of each row, ``[B]`` int64."""
        return torch.tensor([stop - start for start, stop in self.image_spans])

    def only(self, kept: Sequence[Tensor] | None) -> "TokenSequences":
        """Return what is left where tokens were dropped inside the decoder.

        Positions are numbered again without gaps, unless they had gaps before.

        Args:
            kept: For each row the places of its real tokens that stay, ``[T_i]`` ascending; None
                keeps them all.

        Raises:
            ModelError: If a token that carries the loss was dropped.
        """
        if kept is None:
            return self
        real = self.attention_mask.bool()
        counted = torch.equal(
            self.position_ids.expand_as(real)[real],
            compact_positions(self.attention_mask, self.side)[real],
        )
        columns = [
            row.nonzero().squeeze(1)[chosen.to(row.device)]
            for row, chosen in zip(real, kept, strict=True)
        ]

        def gather(values: Tensor, filler: int) -> Tensor:
            picked = [row[column] for row, column in zip(values, columns, strict=True)]
            return pad_rows(picked, filler, self.side)

        mask, labels = gather(self.attention_mask, 0), gather(self.labels, IGNORED)
        if int((labels != IGNORED).sum()) != int((self.labels != IGNORED).sum()):
            raise ModelError(
                "a token of an answer was dropped inside the decoder, and its loss with it",
                remedy="drop tokens of image or prompt only",
            )
        spans = []
        for column, (start, stop) in zip(columns, self.image_spans, strict=True):
            offset = mask.shape[1] - len(column) if self.side == "left" else 0
            before, within = int((column < start).sum()), int((column < stop).sum())
            spans.append((offset + before, offset + within))
        numbered = compact_positions(mask, self.side)
        return TokenSequences(
            input_ids=gather(self.input_ids, 0),
            attention_mask=mask,
            position_ids=numbered if counted else gather(self.position_ids.expand_as(real), 0),
            labels=labels,
            image_spans=tuple(spans),
            side=self.side,
        )


def image_features(patches: Tensor, selection: TokenSelection | None) -> list[Tensor]:
    """Return for each sample the features that enter the projector, ``[k_b, D]``.

    Args:
        patches: Features of all patches, ``[B, N, D]``.
        selection: What is kept of each sample; None keeps everything.

    Raises:
        ModelError: If the selection is for another number of samples.
    """
    if selection is None:
        return list(patches)
    _check_batch(selection, len(patches))
    if selection.merged is not None:
        return list(selection.merged)
    if selection.mixing is not None:
        pairs = zip(patches, selection.mixing, strict=True)
        return [weights.to(row) @ row for row, weights in pairs]
    return [row[kept.to(row.device)] for row, kept in zip(patches, selection.kept, strict=True)]


def shorten(
    input_ids: Tensor,
    attention_mask: Tensor,
    labels: Tensor,
    *,
    image_token: int,
    pad_token: int,
    num_patches: int,
    selection: TokenSelection | None = None,
    side: Side = "right",
    positions: Positions = "compact",
) -> TokenSequences:
    """Remove the image ids of dropped patches, and pad the rows again.

    Args:
        input_ids: Token ids with ``num_patches`` image ids a row, padded on any side, ``[B, S]``.
        attention_mask: 1 where ``input_ids`` holds a token, ``[B, S]``.
        labels: Gold ids, ``[B, S]``.
        image_token: Id of ``<image>``.
        pad_token: Id of padding.
        num_patches: Number of patches ``N`` before pruning.
        selection: What is kept of each sample; None keeps everything.
        side: Where the shortened rows are padded.
        positions: ``compact`` numbers the remaining tokens without gaps. ``original`` keeps the
            number a token had before pruning, which tells a server which patches were kept;
            merged tokens of another number than the kept patches have none.

    Raises:
        ModelError: If a row does not hold one run of ``num_patches`` image ids (LLaVA itself
            compares only the totals over the batch), the selection is for another number of
            samples, or positions are asked for that do not exist.
    """
    if selection is not None:
        _check_batch(selection, len(input_ids))
    rows = []
    for number, (ids, mask) in enumerate(zip(input_ids, attention_mask, strict=True)):
        real = mask.nonzero().squeeze(1)
        start = _image_start(ids[real] == image_token, num_patches, number)
        spots = _kept_spots(selection, number, num_patches, positions).to(ids.device)
        rows.append(_shortened(real, start, spots, num_patches))

    def gather(values: Tensor, filler: int) -> Tensor:
        picked = [row[own.real[own.kept]] for row, own in zip(values, rows, strict=True)]
        return pad_rows(picked, filler, side)

    mask = pad_rows([torch.ones_like(own.kept) for own in rows], 0, side)
    numbering = pad_rows([own.kept for own in rows], 0, side)
    offsets = [mask.shape[1] - len(own.kept) if side == "left" else 0 for own in rows]
    return TokenSequences(
        input_ids=gather(input_ids, pad_token),
        attention_mask=mask,
        position_ids=numbering if positions == "original" else compact_positions(mask, side),
        labels=gather(labels, IGNORED),
        image_spans=tuple(
            (offset + own.start, offset + own.start + own.patches)
            for offset, own in zip(offsets, rows, strict=True)
        ),
        side=side,
    )


class _Shortened(NamedTuple):
    """A row without its dropped patches.

    Args:
        real: Where the row holds a token, ``[T]``.
        kept: Which of these tokens stay, ``[K]``.
        start: Place of the first patch among them.
        patches: Number of patches that stay.
    """

    real: Tensor
    kept: Tensor
    start: int
    patches: int


def _shortened(real: Tensor, start: int, spots: Tensor, num_patches: int) -> _Shortened:
    """Return a row whose patches are those of ``spots``, with the text around them."""
    before = torch.arange(start, device=spots.device)
    after = torch.arange(start + num_patches, len(real), device=spots.device)
    return _Shortened(real, torch.cat((before, start + spots, after)), start, len(spots))


def pad_rows(rows: list[Tensor], filler: int, side: Side) -> Tensor:
    """Stack rows of different length, ``[B, max length]``.

    >>> pad_rows([torch.tensor([1]), torch.tensor([2, 3])], 0, "left").tolist()
    [[0, 1], [2, 3]]
    """
    return torch.nn.utils.rnn.pad_sequence(
        rows, batch_first=True, padding_value=filler, padding_side=side
    )


def compact_positions(mask: Tensor, side: Side) -> Tensor:
    """Return positions without gaps: 0, 1, 2, ... over the tokens of each row, ``[B, S]``.

    Padding on the right goes on counting, as the stock model does.

    >>> compact_positions(torch.tensor([[0, 1, 1], [1, 1, 1]]), "left").tolist()
    [[0, 0, 1], [0, 1, 2]]
    """
    if side == "right":
        return torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def _check_batch(selection: TokenSelection, samples: int) -> None:
    if len(selection.kept) != samples:
        raise ModelError(f"decision for {len(selection.kept)} samples, batch of {samples}")


def _image_start(is_image: Tensor, num_patches: int, row: int) -> int:
    spots = is_image.nonzero().squeeze(1)
    if len(spots) != num_patches:
        raise ModelError(
            f"row {row} holds {len(spots)} image tokens for {num_patches} patches",
            remedy="build the batch with the model's own preprocessor",
        )
    start = int(spots[0])
    if int(spots[-1]) - start + 1 != num_patches:
        raise ModelError(f"the image tokens of row {row} are not one run")
    return start


def _kept_spots(
    selection: TokenSelection | None, row: int, num_patches: int, positions: Positions
) -> Tensor:
    """Return which of the image ids stay; merged tokens of another number take the first."""
    if selection is None:
        return torch.arange(num_patches)
    kept = selection.kept[row]
    tokens = selection.mixing if selection.merged is None else selection.merged
    if tokens is None or len(tokens[row]) == len(kept):
        return kept
    count = len(tokens[row])
    if count > num_patches:
        raise ModelError(f"row {row} has {count} merged tokens for {num_patches} patches")
    if positions == "original":
        raise ModelError(
            f"{count} merged tokens of row {row} have no place among the patches",
            remedy="number the tokens anew: positions compact",
        )
    return torch.arange(count)
