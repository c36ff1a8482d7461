"""Parties that own some of the decoder's layers and can compute nothing else.

`Crossing` looks into one whole model; these are that model taken apart. Each holds references to
its own layers only, so that who owns what is a fact about objects: a `Segment` has no embedding,
no head and no other layer to read. Run one after another, cut by detached leaves, they equal the
whole model bit for bit, in loss and in every gradient.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from qpriv.models.decoder.layer_inputs import layer_inputs
from qpriv.models.decoder.sequences import IGNORED, Side, TokenSequences, compact_positions
from qpriv.models.llava.vision_language import VisionLanguageModel


@dataclass(frozen=True)
class TokenLayout:
    """How tokens that crossed without padding are padded again.

    Args:
        lengths: Real tokens of each sample, ``[B]``.
        side: Where rows are padded.
        positions: Positions of the real tokens one after another, ``[sum T_i]``; None where they
            count 0, 1, 2, ... in every sample.

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
        mask = sequences.attention_mask
        side: Side = "right" if bool(mask[:, 0].all()) else "left"
        real, counted = mask.bool(), compact_positions(mask, side)
        told = sequences.position_ids.expand_as(mask)
        same = torch.equal(told[real], counted[real])
        return cls(mask.sum(dim=1), side, None if same else told[real])

    @property
    def mask(self) -> Tensor:
        """Return 1 where a padded batch holds a token, ``[B, S]``."""
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
        """Return the real tokens of ``[B, S, ...]`` one after another, ``[sum T_i, ...]``."""
        return padded[self.mask.bool()]

    def unpack(self, rows: Tensor, filler: int = 0) -> Tensor:
        """Return tokens ``[sum T_i, ...]`` as a padded batch ``[B, S, ...]``."""
        mask = self.mask.bool()
        padded = rows.new_full((*mask.shape, *rows.shape[1:]), filler)
        return padded.index_put((mask,), rows)


class Segment(nn.Module):
    """Decoder layers ``[start, stop)``: all that the server of a U-shaped split holds.

    Args:
        model: The model whose layers it shares, with or without LoRA.
        start: The first layer.
        stop: One past the last layer.
    """

    def __init__(self, model: VisionLanguageModel, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop
        decoder: Any = model.language_model
        self.config = decoder.config
        self.layers = nn.ModuleList(decoder.layers[start:stop])
        self.rotary: nn.Module = decoder.rotary_emb

    def forward(
        self, hidden: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache | None = None
    ) -> Tensor:
        """Run the layers.

        Args:
            hidden: What enters the first layer, ``[B, S, d]``.
            mask: 1 for every real token, those in the cache included, ``[B, P + S]``.
            positions: Positions of the tokens in ``hidden``, ``[B, S]``.
            cache: Keys and values of this party's layers; filled in place.
        """
        inputs = layer_inputs(
            self.config, self.rotary, hidden, mask, positions, cache, layer=self.start
        )
        for layer in self.layers:
            hidden = layer(hidden, **inputs, cache=cache, use_cache=cache is not None)
        return hidden

    def new_cache(self) -> DynamicCache:
        """Return an empty cache for this party's layers."""
        return DynamicCache(config=self.config)


class Head(Segment):
    """Embeddings, projector and layers ``[0, stop)``: where a client's data enter."""

    def __init__(self, model: VisionLanguageModel, stop: int) -> None:
        super().__init__(model, 0, stop)
        decoder: Any = model.language_model
        self.embedding: nn.Module = decoder.embed_tokens
        self.projector = model.projector
        self.image_token = model.preprocessor.image_token

    def embed(self, input_ids: Tensor, kept: list[Tensor] | None = None) -> Tensor:
        """Return the embeddings ``[B, S, d]`` of tokens, image tokens replaced by the image.

        Args:
            input_ids: Token ids with an image id for each kept patch, ``[B, S]``.
            kept: Features of the kept patches of each sample, ``[k_i, D]``; None without image.
        """
        embedded: Tensor = self.embedding(input_ids)
        if kept is None:
            return embedded
        weight = next(self.projector.parameters())
        projected = self.projector(torch.cat(kept).to(weight.device, weight.dtype))
        places = (input_ids == self.image_token).unsqueeze(-1)
        return embedded.masked_scatter(places, projected.to(embedded.dtype))


class Tail(Segment):
    """Layers ``[start, L)``, the last norm and the LM head: where answers and labels are."""

    def __init__(self, model: VisionLanguageModel, start: int) -> None:
        super().__init__(model, start, model.num_layers)
        decoder: Any = model.language_model
        self.norm: nn.Module = decoder.norm
        self.lm_head = model.lm_head
        self._loss = model.stock.loss_function

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of the next token, ``[B, S, V]``."""
        scores: Tensor = self.lm_head(self.norm(hidden))
        return scores

    def next_ids(self, hidden: Tensor) -> Tensor:
        """Return the likeliest next token of every row, ``[B]``."""
        return self.logits(hidden[:, -1:])[:, -1].argmax(dim=-1)

    def loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of the answer tokens, as the whole model computes it."""
        loss: Tensor = self._loss(
            logits=self.logits(hidden), labels=labels, vocab_size=self.config.vocab_size
        )
        return loss


def unpack_labels(layout: TokenLayout, rows: Tensor) -> Tensor:
    """Return labels that crossed as ``[sum T_i]`` as a padded batch ``[B, S]``."""
    return layout.unpack(rows.long(), IGNORED)


def shed(model: VisionLanguageModel, *kept: nn.Module) -> None:
    """Free every frozen weight of a model that is in none of the kept parts.

    A server's process then holds its own layers, and of all others the shapes alone. Adapters
    stay, so that the server's can be exported.
    """
    staying = {id(parameter) for part in kept for parameter in part.parameters()}
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if id(weight) not in staying and not weight.requires_grad:
                setattr(module, name, nn.Parameter(weight.to("meta"), requires_grad=False))


def trained(*parts: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters of some parts, each once."""
    return [parameter for parameter in _distinct(parts) if parameter.requires_grad]


def _distinct(parts: Iterable[nn.Module]) -> Iterator[nn.Parameter]:
    seen: set[int] = set()
    for parameter in (parameter for part in parts for parameter in part.parameters()):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            yield parameter
