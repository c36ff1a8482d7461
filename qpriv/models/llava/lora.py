"""LoRA on the decoder of LLaVA: where it goes, and how it is saved and counted.

Targets are a regular expression on full module names. PEFT's usual list of short names
(``q_proj``, ...) would also adapt the vision tower, whose attention has the same names.
"""

import warnings
from collections.abc import Mapping, Sequence

import torch
from peft import (
    LoraConfig,
    PeftModel,
    get_peft_model,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from qpriv.errors import CheckpointError, ConfigError

PROJECTIONS = 7
"""Adapted projections of a decoder layer: query, key, value, output; gate, up, down."""

_PROJECTION = r"(self_attn\.(q|k|v|o)_proj|mlp\.(gate|up|down)_proj)"


def lora_targets(layers: Sequence[int]) -> str:
    """Return the regular expression of the adapted projections of some decoder layers.

    >>> import re
    >>> bool(re.fullmatch(lora_targets([1]), "model.language_model.layers.1.mlp.up_proj"))
    True
    >>> bool(re.fullmatch(lora_targets([1]), "model.vision_tower.encoder.layers.1.q_proj"))
    False
    """
    numbers = "|".join(str(layer) for layer in layers)
    return rf".*language_model\.layers\.({numbers})\.{_PROJECTION}"


def add_lora(
    llava: nn.Module,
    *,
    layers: Sequence[int],
    rank: int,
    alpha: float,
    dropout: float,
    seed: int,
    adapter: str,
) -> PeftModel:
    """Add an adapter with seeded weights to a LLaVA and return it wrapped by PEFT.

    Args:
        llava: The stock model, or the PEFT model an earlier call returned; a further adapter
            is added inactive.
        layers: Decoder layers that are adapted.
        rank: Rank of the update.
        alpha: Scale of the update; it is multiplied by ``alpha / rank``.
        dropout: Share of the adapter's inputs that are dropped in training.
        seed: Seed of the initial weights, whatever the state of the global generator.
        adapter: Name of the adapter.

    Raises:
        ConfigError: If a setting cannot work.
        RuntimeError: If other projections than seven a layer were adapted.
    """
    if rank < 1 or not 0 <= dropout < 1 or not layers:
        raise ConfigError(f"LoRA of rank {rank}, dropout {dropout} on {len(layers)} layers")
    config = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=lora_targets(layers)
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        # PEFT asks transformers for the old name of an attribute that is still there
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        torch.manual_seed(seed)
        if isinstance(llava, PeftModel):
            llava.add_adapter(adapter, config)
            model = llava
        else:
            model = get_peft_model(llava, config, adapter_name=adapter)
    adapted = adapted_modules(model, adapter)
    if len(adapted) != PROJECTIONS * len(layers):
        raise RuntimeError(f"{len(adapted)} projections adapted, not {PROJECTIONS * len(layers)}")
    return model


def adapted_modules(model: nn.Module, adapter: str) -> list[str]:
    """Return the names of the modules that hold weights of an adapter."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, BaseTunerLayer) and adapter in getattr(module, "lora_A", {})
    ]


def adapter_state(model: PeftModel, adapter: str) -> dict[str, Tensor]:
    """Return copies of an adapter's weights, keyed as in PEFT's ``adapter_model.safetensors``."""
    state = get_peft_model_state_dict(model, adapter_name=adapter)
    return {name: weight.detach().clone() for name, weight in state.items()}


def load_adapter_state(model: PeftModel, state: Mapping[str, Tensor], adapter: str) -> None:
    """Overwrite an adapter's weights in place.

    Raises:
        CheckpointError: If names or shapes differ from the adapter's; PEFT itself would load
            what fits and stay silent about the rest.
    """
    own = get_peft_model_state_dict(model, adapter_name=adapter)
    wrong = sorted(own.keys() ^ state.keys()) or [
        name for name in own if own[name].shape != state[name].shape
    ]
    if wrong:
        raise CheckpointError(
            f"{len(wrong)} of {len(own)} adapter weights do not fit, among them {wrong[0]}",
            remedy="load it into the backbone, rank and layers it was trained with",
        )
    set_peft_model_state_dict(model, dict(state), adapter_name=adapter)
