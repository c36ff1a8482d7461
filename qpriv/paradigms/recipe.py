"""`LoraRecipe`: the training recipe that a victim and its shadow models share."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from qpriv.errors import ConfigError

from .optimizers import Algorithm, make_optimizer

Schedule = Literal["cosine", "linear", "constant"]


@dataclass(frozen=True, kw_only=True)
class LoraRecipe:
    """The training recipe of a LoRA adapter. The defaults are the source's.

    Args:
        rank: Rank r of every adapter matrix pair.
        alpha: LoRA's scale; the update is ``alpha / rank * B A``.
        dropout: Dropout before A.
        algorithm: AdamW, with moments in 32 or 8 bits.
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Decoupled weight decay.
        schedule: How the learning rate falls after the warm-up.
        warmup: Share of all steps in which the learning rate rises linearly from zero.
        clip: Largest gradient norm; larger gradients are scaled down.
        batch_size: Samples per optimiser step.
        micro_batch_size: Samples per forward and backward pass; None is the whole batch.
            Gradients accumulate over the whole batch, and every answer token has the same weight.
        epochs: Planned passes over the training samples, possibly fractional; ``inf`` without a
            planned end, which only a constant schedule without warm-up allows.

    Raises:
        ConfigError: If a value is out of range.
    """

    rank: int = 32
    alpha: float = 64.0
    dropout: float = 0.0
    algorithm: Algorithm = "adamw"
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    schedule: Schedule = "cosine"
    warmup: float = 0.03
    clip: float = 1.0
    batch_size: int = 128
    micro_batch_size: int | None = None
    epochs: float = 10

    def __post_init__(self) -> None:
        """Check the ranges."""
        positive = ("rank", "alpha", "learning_rate", "clip", "batch_size", "epochs")
        for name in positive:
            require(getattr(self, name) > 0, name, getattr(self, name), "choose more than 0")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "choose 0 to below 1")
        require(0 <= self.warmup <= 1, "warmup", self.warmup, "it is a share: choose 0 to 1")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "choose 0 or more")
        planned = math.isfinite(self.epochs) or (self.schedule == "constant" and not self.warmup)
        require(planned, "epochs", self.epochs, "choose a number, or schedule constant, warmup 0")
        micro = self.micro_batch_size
        require(
            micro is None or micro > 0, "micro_batch_size", micro, "choose more than 0, or null"
        )

    def steps(self, samples: int) -> float:
        """Return the planned optimiser steps for a number of samples.

        >>> LoraRecipe(batch_size=8, epochs=2.5).steps(15)
        5
        """
        planned = self.epochs * self.steps_of_pass(samples)
        return max(1, round(planned)) if math.isfinite(planned) else planned

    def steps_of_pass(self, samples: int) -> int:
        """Return the optimiser steps of one pass through a number of samples."""
        return math.ceil(samples / self.batch_size)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return an optimiser for the trainable parameters among ``parameters``."""
        trainable = [parameter for parameter in parameters if parameter.requires_grad]
        return make_optimizer(self.algorithm, trainable, self.learning_rate, self.weight_decay)

    def scheduler(self, optimizer: torch.optim.Optimizer, steps: float) -> LambdaLR:
        """Return the learning rate schedule over ``steps`` optimiser steps."""
        return warmed_up(optimizer, self.schedule, self.warmup, steps)


def warmed_up(
    optimizer: torch.optim.Optimizer, schedule: Schedule, warmup: float, steps: float
) -> LambdaLR:
    """Return a schedule that rises for a share ``warmup`` of ``steps`` and then falls."""
    return LambdaLR(optimizer, lambda step: rate(step, steps, schedule, warmup))


def rate(step: int, steps: float, schedule: Schedule, warmup: float) -> float:
    """Return the learning rate of a step, as a share of its peak.

    With ``inf`` steps it is constant.

    >>> [round(rate(step, 8, "cosine", 0.25), 3) for step in range(8)]
    [0.5, 1.0, 1.0, 0.933, 0.75, 0.5, 0.25, 0.067]
    """
    if math.isinf(steps):
        return 1.0
    rising = math.ceil(warmup * steps)
    if step < rising:
        return (step + 1) / rising
    done = min(1.0, (step - rising) / max(1, steps - rising))
    falls = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}
    return falls[schedule]


def require(holds: bool, name: str, value: object, remedy: str) -> None:
    """Raise a `ConfigError` that names a setting, unless its condition holds."""
    if not holds:
        raise ConfigError(f"{name} is {value}", remedy=remedy)
