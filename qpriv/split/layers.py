"""`Segment`, `Head` and `Tail`: parts of the decoder that separate parties own.

`Crossing` observes one whole model; here the model is taken apart. Each part references only its
own layers, so ownership is a property of objects: a `Segment` has no embedding, no head and no
other layer to read. Run one after another with detached leaves between them, the parts are
bit-equal to the whole model in loss and gradients.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from qpriv.models.decoder.layer_inputs import layer_inputs
from qpriv.models.decoder.sequences import IGNORED
from qpriv.models.llava.vision_language import VisionLanguageModel

from .layout import TokenLayout


class Segment(nn.Module):
    """Decoder layers ``[start, stop)``, as the server of a U-shaped split owns them.

    Args:
        model: The model whose layers the segment shares, with or without LoRA.
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
            hidden: Input of the first layer, ``[B, S, d]``.
            mask: 1 for every real token, including those in the cache, ``[B, P + S]``.
            positions: Positions of the tokens in ``hidden``, ``[B, S]``.
            cache: Keys and values of this party's layers; updated in place.
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
    """Embeddings, projector and layers ``[0, stop)``: the client's entrance of the decoder."""

    def __init__(self, model: VisionLanguageModel, stop: int) -> None:
        super().__init__(model, 0, stop)
        decoder: Any = model.language_model
        self.embedding: nn.Module = decoder.embed_tokens
        self.projector = model.projector
        self.image_token = model.preprocessor.image_token

    def embed(self, input_ids: Tensor, kept: list[Tensor] | None = None) -> Tensor:
        """Return token embeddings ``[B, S, d]`` with projected features at the image tokens.

        Args:
            input_ids: Token ids with an image id for each kept patch, ``[B, S]``.
            kept: Features of the kept patches of each sample, ``[k_i, D]``; None without images.
        """
        embedded: Tensor = self.embedding(input_ids)
        if kept is None:
            return embedded
        weight = next(self.projector.parameters())
        projected = self.projector(torch.cat(kept).to(weight.device, weight.dtype))
        places = (input_ids == self.image_token).unsqueeze(-1)
        return embedded.masked_scatter(places, projected.to(embedded.dtype))


class Tail(Segment):
    """Layers ``[start, L)``, the final norm and the LM head: the owner of labels and answers."""

    def __init__(self, model: VisionLanguageModel, start: int) -> None:
        super().__init__(model, start, model.num_layers)
        decoder: Any = model.language_model
        self.norm: nn.Module = decoder.norm
        self.lm_head = model.lm_head
        self._loss = model.stock.loss_function

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of the next token, ``[B, S, V]``."""
        scores: Tensor = self.lm_head(self.norm(hidden))
        return scores

    def next_ids(self, hidden: Tensor) -> Tensor:
        """Return the most likely next token of every row, ``[B]``."""
        return self.logits(hidden[:, -1:])[:, -1].argmax(dim=-1)

    def loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of the answer tokens, as the whole model computes it."""
        loss: Tensor = self._loss(
            logits=self.logits(hidden), labels=labels, vocab_size=self.config.vocab_size
        )
        return loss


def unpack_labels(layout: TokenLayout, rows: Tensor) -> Tensor:
    """Return labels ``[sum T_i]`` as a padded batch ``[B, S]``."""
    return layout.unpack(rows.long(), IGNORED)


def shed(model: VisionLanguageModel, *kept: nn.Module) -> None:
    """Free every frozen weight of a model that belongs to none of the kept parts.

    A server's process then holds its own layers, and only the shapes of all others. Adapters
    stay, so that the server's adapter can be exported.
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
