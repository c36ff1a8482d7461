"""Loss scaling, which keeps small gradients from underflowing in float16."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from qpriv.models.precision import autocast_dtype

START = 2.0**16
"""Initial loss scale, as in trainers."""

CAUTIOUS = 2.0**12
"""A loss scale at which few gradients overflow, for runs too short to adapt it."""


class Scaling(Protocol):
    """Backward passes with gradients scaled by ``scale``, and steps that unscale them."""

    @property
    def scale(self) -> float:
        """Return the factor of the last backward pass's gradients."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the scaled gradient of a loss to the weights."""
        ...

    def step(self, optimizer: Optimizer, values: Sequence[Tensor] | None = None) -> None:
        """Take an optimiser step with unscaled gradients.

        Args:
            optimizer: The optimiser; the step is skipped if a gradient has overflowed.
            values: New weights for a `FedAvg`, which uses no gradients; None for any other
                optimiser.
        """
        ...


class OwnScaling:
    """Loss scaling without a trainer, by `torch.amp.GradScaler`; off by default.

    Args:
        device: Device type of the gradients.
        enabled: Whether to scale the loss.
        start: Initial loss scale.
    """

    def __init__(self, device: str = "cpu", *, enabled: bool = False, start: float = START) -> None:
        self._scaler = GradScaler(device, init_scale=start, enabled=enabled)

    @property
    def scale(self) -> float:
        """Return the loss scale; 1 if scaling is off."""
        return float(self._scaler.get_scale())

    def backward(self, loss: Tensor) -> None:
        """Add the scaled gradient of a loss to the weights."""
        torch.autograd.backward(self._scaler.scale(loss))

    def step(self, optimizer: Optimizer, values: Sequence[Tensor] | None = None) -> None:
        """Take a step with unscaled gradients, unless one has overflowed."""
        if values is not None:
            optimizer.step(values=values)  # type: ignore[call-overload]
            return
        self._scaler.step(optimizer)
        self._scaler.update()


def scaling_for(device: torch.device, start: float = START) -> OwnScaling:
    """Return the scaling that the active autocast requires; only float16 is scaled."""
    return OwnScaling(device.type, enabled=autocast_dtype(device) == torch.float16, start=start)
