"""The layers behind a cut, told of fewer tokens than the model was given."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from qpriv.models.decoder.layer_inputs import layer_inputs
from qpriv.models.llava.vision_language import VisionLanguageModel

from .layout import TokenLayout


class Behind:
    """The layers behind a cut, where fewer tokens arrive than the model was given.

    They are told mask and positions of what arrives, in place of the model's own, to the end of a
    generation.

    Args:
        model: The whole model.
        start: The first of the layers.
    """

    def __init__(self, model: VisionLanguageModel, start: int) -> None:
        self.model, self.start = model, start
        self._told: dict[str, Any] | None = None
        self._mask: Tensor | None = None
        self._next: Tensor | None = None

    def place(self) -> list[torch.utils.hooks.RemovableHandle]:
        """Return hooks that tell the later layers; the first one is told by its caller."""
        return [
            layer.register_forward_pre_hook(self._tell, with_kwargs=True)
            for layer in self.model.decoder_layers[self.start + 1 :]
        ]

    def enter(self, prefill: bool) -> None:
        """Forget what was told of an earlier call, and of an earlier batch if this is a new one."""
        self._told = None
        if prefill:
            self._mask = self._next = None

    def begin(
        self, hidden: Tensor, layout: TokenLayout, cache: DynamicCache | None
    ) -> dict[str, Any]:
        """Return what to tell of the tokens that are left of a batch, ``[B, S, d]``."""
        positions = layout.position_ids
        self._mask = layout.mask
        self._next = (positions * layout.mask).amax(dim=1) + 1
        return self._tell_of(hidden, positions, cache)

    def go_on(self, hidden: Tensor, cache: DynamicCache | None) -> dict[str, Any] | None:
        """Return what to tell of one more token of each sample, if any were withdrawn before."""
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
