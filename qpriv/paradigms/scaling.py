"""Loss scaling: in float16 small gradients vanish, unless the loss is multiplied before."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from qpriv.models.precision import autocast_dtype

START = 2.0**16
"""Factor of the first step, as trainers have it."""

CAUTIOUS = 2.0**12
"""Factor that few gradients overflow at, where there are too few steps to find it."""


class Scaling(Protocol):
    """Backward passes whose gradients come out ``scale`` times too large, and steps that know it."""

    @property
    def scale(self) -> float:
        """Return by what the gradients of the last backward pass were multiplied."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the scaled gradient of a loss to the weights."""
        ...

    def step(self, optimizer: Optimizer, values: Sequence[Tensor] | None = None) -> None:
        """Take a step by the gradients without the factor.

        Args:
            optimizer: Takes the step; not where a gradient has overflowed.
            values: What a `FedAvg` overwrites the weights by: it looks at no gradient. None for
                any other optimiser.
        """
        ...


class OwnScaling:
    """Scaling outside a trainer, as `torch.amp.GradScaler` does it; none unless it is asked for.

    Args:
        device: Where gradients are.
        enabled: Whether there is a factor.
        start: The first factor.
    """

    def __init__(self, device: str = "cpu", *, enabled: bool = False, start: float = START) -> None:
        self._scaler = GradScaler(device, init_scale=start, enabled=enabled)

    @property
    def scale(self) -> float:
        """Return the factor, 1 where there is none."""
        return float(self._scaler.get_scale())

    def backward(self, loss: Tensor) -> None:
        """Add the scaled gradient of a loss to the weights."""
        torch.autograd.backward(self._scaler.scale(loss))

    def step(self, optimizer: Optimizer, values: Sequence[Tensor] | None = None) -> None:
        """Take a step by the gradients without the factor, unless one has overflowed."""
        if values is not None:
            optimizer.step(values=values)  # type: ignore[call-overload]
            return
        self._scaler.step(optimizer)
        self._scaler.update()


def scaling_for(device: torch.device, start: float = START) -> OwnScaling:
    """Return the scaling that training needs under the autocast that is on: one for float16."""
    return OwnScaling(device.type, enabled=autocast_dtype(device) == torch.float16, start=start)
