"""LoRA on the text decoder of a document model."""

import torch
from peft import LoraConfig, get_peft_model

from qpriv.errors import ConfigError

from .base import DocumentModel

TARGETS = {
    "donut": r"decoder\..*\.((self|encoder)_attn\.(q|k|v|out)_proj|fc[12])",
    "pix2struct": r"decoder\..*\.(query|key|value|output|wi_0|wi_1|wo)",
    "paligemma": r".*language_model\..*\.([qkvo]_proj|gate_proj|up_proj|down_proj)",
}
"""Adapted projections of each family, as regular expressions on full module names."""


def add_document_lora(
    model: DocumentModel, rank: int, alpha: float, dropout: float = 0.0, seed: int = 0
) -> None:
    """Put adapters into a model, in place; everything else is frozen.

    Args:
        model: The model.
        rank: Rank of every adapter.
        alpha: Scale; the update is ``alpha / rank * B A``.
        dropout: Dropout in front of A.
        seed: Seed of the adapters' initial weights.

    Raises:
        ConfigError: If a setting cannot work, or the model has adapters already.
    """
    if rank < 1 or not 0 <= dropout < 1:
        raise ConfigError(f"LoRA of rank {rank}, dropout {dropout}")
    if model.network is not model.base:
        raise ConfigError("the model has adapters already")
    config = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=TARGETS[model.family]
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.network = get_peft_model(model.network, config)
