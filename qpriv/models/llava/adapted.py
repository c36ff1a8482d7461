"""`AdaptedLlava`: the stock LLaVA with or without adapters, its parts under one name each."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import LlavaForConditionalGeneration

from qpriv.errors import ConfigError

from . import lora


class AdaptedLlava(nn.Module):
    """A frozen LLaVA whose decoder can be given LoRA adapters.

    Args:
        llava: The stock model.
    """

    def __init__(self, llava: LlavaForConditionalGeneration) -> None:
        super().__init__()
        self.llava: LlavaForConditionalGeneration | PeftModel = llava

    @property
    def stock(self) -> LlavaForConditionalGeneration:
        """Return the stock model, under PEFT or not; adapters are layers inside it."""
        return self.llava.get_base_model() if isinstance(self.llava, PeftModel) else self.llava

    @property
    def vision_tower(self) -> nn.Module:
        """Return LLaVA's CLIP vision tower."""
        tower: nn.Module = self.stock.model.vision_tower
        return tower

    @property
    def projector(self) -> nn.Module:
        """Return the module between vision tower and language model."""
        projector: nn.Module = self.stock.model.multi_modal_projector
        return projector

    @property
    def language_model(self) -> nn.Module:
        """Return the decoder without its head."""
        decoder: nn.Module = self.stock.model.language_model
        return decoder

    @property
    def decoder_layers(self) -> nn.ModuleList:
        """Return the decoder layers, the places of cuts and hooks."""
        layers: nn.ModuleList = self.stock.model.language_model.layers
        return layers

    @property
    def lm_head(self) -> nn.Module:
        """Return the layer that scores the next token."""
        head: nn.Module = self.stock.lm_head
        return head

    @property
    def num_layers(self) -> int:
        """Return the number of decoder layers."""
        return len(self.decoder_layers)

    @property
    def hidden_size(self) -> int:
        """Return the width of the decoder."""
        return int(self.stock.config.text_config.hidden_size)

    @property
    def device(self) -> torch.device:
        """Return where the model's weights are."""
        return next(self.lm_head.parameters()).device

    @property
    def is_quantised(self) -> bool:
        """Return whether the frozen projections of the decoder are quantised."""
        return bool(getattr(self.stock, "is_quantized", False))

    def add_lora(
        self,
        rank: int = 32,
        alpha: float = 64,
        dropout: float = 0.0,
        seed: int = 0,
        adapter: str = "default",
        layers: Sequence[int] | None = None,
    ) -> None:
        """Add a LoRA to the seven projections of every decoder layer, or of some.

        Args:
            rank: Rank of the update.
            alpha: Scale of the update; it is multiplied by ``alpha / rank``.
            dropout: Share of the adapter's inputs that are dropped in training.
            seed: Seed of the initial weights.
            adapter: Name of the adapter.
            layers: Decoder layers that are adapted; None is all.

        Raises:
            ConfigError: If a setting cannot work, or there is an adapter of this name.
        """
        if isinstance(self.llava, PeftModel) and adapter in self.llava.peft_config:
            raise ConfigError(f"there is a LoRA named {adapter!r} already")
        self.llava = lora.add_lora(
            self.llava,
            layers=range(self.num_layers) if layers is None else layers,
            rank=rank,
            alpha=alpha,
            dropout=dropout,
            seed=seed,
            adapter=adapter,
        )
        self.train(self.training)

    def remove_lora(self) -> None:
        """Remove all adapters and what they learned; the stock model is as loaded again."""
        if isinstance(self.llava, PeftModel):
            self.llava = self.llava.unload()

    def merge_lora(self) -> None:
        """Add what the active adapters learned to the weights, and remove all adapters.

        Raises:
            ConfigError: If there is no LoRA, or the weights are quantised.
        """
        adapted = self._peft()
        if self.is_quantised:
            raise ConfigError(
                "quantised weights cannot take up an adapter without being rounded again",
                where="--model.quantization",
                remedy="load the model without quantization, and merge there",
            )
        self.llava = adapted.merge_and_unload(adapter_names=adapted.active_adapters)

    @contextmanager
    def without_adapters(self) -> Iterator[None]:
        """Compute as the base model does; which weights have gradients stays as it was."""
        if not isinstance(self.llava, PeftModel):
            yield
            return
        # PEFT freezes resting adapters, and lets all active ones have gradients afterwards
        flags = [(weight, weight.requires_grad) for weight in self.llava.parameters()]
        try:
            with self.llava.disable_adapter():
                yield
        finally:
            for weight, flag in flags:
                weight.requires_grad_(flag)

    def adapter_state(self, adapter: str = "default") -> dict[str, Tensor]:
        """Return copies of an adapter's weights, keyed as in a PEFT folder.

        Raises:
            ConfigError: If there is no LoRA.
        """
        return lora.adapter_state(self._peft(), adapter)

    def load_adapter_state(self, state: Mapping[str, Tensor], adapter: str = "default") -> None:
        """Overwrite an adapter's weights in place.

        Raises:
            ConfigError: If there is no LoRA.
            CheckpointError: If names or shapes differ.
        """
        lora.load_adapter_state(self._peft(), state, adapter)

    def _peft(self) -> PeftModel:
        if not isinstance(self.llava, PeftModel):
            raise ConfigError("the model has no LoRA", remedy="call add_lora first")
        return self.llava
