"""AdamW with moments of 32 or 8 bits (bitsandbytes; Dettmers et al. 2022, arXiv:2110.02861)."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from qpriv.errors import ConfigError

Algorithm = Literal["adamw", "adamw8bit", "paged_adamw8bit"]


def make_optimizer(
    algorithm: Algorithm,
    parameters: Sequence[nn.Parameter],
    learning_rate: float,
    weight_decay: float,
) -> Optimizer:
    """Return the optimiser of some parameters.

    Args:
        algorithm: ``adamw8bit`` keeps moments in 8 bits, those of parameters below 4096 values
            in 32; ``paged_adamw8bit`` also moves them to the CPU's memory when a GPU's is full.
        parameters: What is trained.
        learning_rate: Peak learning rate.
        weight_decay: Decoupled weight decay.

    Raises:
        ConfigError: If moments are to be paged and the parameters are not on a GPU.
    """
    if algorithm == "adamw":
        return AdamW(parameters, lr=learning_rate, weight_decay=weight_decay)
    # imported where it is used: it takes seconds, and few runs use it
    import bitsandbytes.optim

    for parameter in parameters:
        check_device(algorithm, parameter.device)
    kinds = {
        "adamw8bit": bitsandbytes.optim.AdamW8bit,
        "paged_adamw8bit": bitsandbytes.optim.PagedAdamW8bit,
    }
    made: Optimizer = kinds[algorithm](parameters, lr=learning_rate, weight_decay=weight_decay)
    return made


def check_device(algorithm: Algorithm, device: torch.device) -> None:
    """Check that an algorithm works where the parameters are; bitsandbytes would not page at all.

    Raises:
        ConfigError: If it does not.
    """
    if algorithm == "paged_adamw8bit" and device.type != "cuda":
        raise ConfigError(
            f"paged_adamw8bit pages a GPU's memory, and this run is on {device.type}",
            where="--model.optimizer",
            remedy="choose adamw8bit",
        )
