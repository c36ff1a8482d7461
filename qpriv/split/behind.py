"""`Behind`: run the layers after a cut on fewer tokens than the model was given."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from qpriv.models.decoder.layer_inputs import layer_inputs
from qpriv.models.llava.vision_language import VisionLanguageModel

from .layout import TokenLayout


class Behind:
    """Gives the layers after a cut the mask and positions of the tokens that arrive.

    These replace the model's own mask and positions until the end of a generation, because the
    sender may withdraw tokens at the cut.

    Args:
        model: The whole model.
        start: The first layer after the cut.
    """

    def __init__(self, model: VisionLanguageModel, start: int) -> None:
        self.model, self.start = model, start
        self._told: dict[str, Any] | None = None
        self._mask: Tensor | None = None
        self._next: Tensor | None = None

    def place(self) -> list[torch.utils.hooks.RemovableHandle]:
        """Hook all layers except the first, whose inputs the caller replaces; return the hooks."""
        return [
            layer.register_forward_pre_hook(self._tell, with_kwargs=True)
            for layer in self.model.decoder_layers[self.start + 1 :]
        ]

    def enter(self, prefill: bool) -> None:
        """Drop the inputs of the previous call; on a prefill also those of the previous batch."""
        self._told = None
        if prefill:
            self._mask = self._next = None

    def begin(
        self, hidden: Tensor, layout: TokenLayout, cache: DynamicCache | None
    ) -> dict[str, Any]:
        """Return the layer inputs for the remaining tokens of a batch, ``[B, S, d]``."""
        positions = layout.position_ids
        self._mask = layout.mask
        self._next = (positions * layout.mask).amax(dim=1) + 1
        return self._tell_of(hidden, positions, cache)

    def go_on(self, hidden: Tensor, cache: DynamicCache | None) -> dict[str, Any] | None:
        """Return the layer inputs for one more token per sample; None if none were withdrawn."""
        if self._mask is None or self._next is None:
            return None
        positions = self._next[:, None]
        self._mask = torch.cat((self._mask, torch.ones_like(positions)), dim=1)
        self._next = self._next + 1
        return self._tell_of(hidden, positions, cache)

    def _tell_of(
        self, hidden: Tensor, positions: Tensor, cache: DynamicCache | None
    ) -> dict[str, Any]:
        decoder: Any = self.model.language_model
        assert self._mask is not None
        self._told = layer_inputs(
            decoder.config, decoder.rotary_emb, hidden, self._mask, positions, cache, self.start
        )
        return self._told

    def _tell(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        return None if self._told is None else (args, {**kwargs, **self._told})
