"""AdamW with 32-bit or 8-bit moments (bitsandbytes; Dettmers et al. 2022, arXiv:2110.02861)."""

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
    """Return an optimiser for some parameters.

    Args:
        algorithm: ``adamw8bit`` keeps moments in 8 bits (32 bits for parameters below 4096
            values). ``paged_adamw8bit`` also moves moments to CPU memory if GPU memory is full.
        parameters: The parameters to train.
        learning_rate: Peak learning rate.
        weight_decay: Decoupled weight decay.

    Raises:
        ConfigError: If the algorithm is paged and a parameter is not on a GPU.
    """
    if algorithm == "adamw":
        return AdamW(parameters, lr=learning_rate, weight_decay=weight_decay)
    # imported here because it takes seconds and few runs need it
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
    """Check that an algorithm works on a device; bitsandbytes itself would silently not page.

    Raises:
        ConfigError: If it does not work there.
    """
    if algorithm == "paged_adamw8bit" and device.type != "cuda":
        raise ConfigError(
            f"paged_adamw8bit pages a GPU's memory, and this run is on {device.type}",
            where="--model.optimizer",
            remedy="choose adamw8bit",
        )
