"""Gradient clipping by the global norm if no party sees all gradients.

Each party sends one number, the sum of squares of its own gradients, and all scale by the global
norm. Clipping therefore does not depend on who owns which layers. Sums are in float64, so rounding
from the order of summation is 29 bits below the last bit of a gradient.
"""

from collections.abc import Iterable
from math import fsum, sqrt

import torch
from torch import Tensor, nn

from qpriv.models.precision import widened

_EPSILON = 1e-6  # as in `torch.nn.utils.clip_grad_norm_`


def square_norm(parameters: Iterable[nn.Parameter], scale: float = 1.0) -> float:
    """Return the sum of squares of one party's gradients.

    Args:
        parameters: The party's trained weights.
        scale: Loss scale, by which the gradients are multiplied.

    >>> weight = nn.Parameter(torch.zeros(2)); weight.grad = torch.tensor([3.0, 4.0])
    >>> square_norm([weight, nn.Parameter(torch.zeros(1))])
    25.0
    """
    return sum_of_squares(p.grad for p in parameters if p.grad is not None) / scale**2


def sum_of_squares(tensors: Iterable[Tensor]) -> float:
    """Return the sum of squares over all tensors; 0 without any."""
    gradients = [widened(each) for each in tensors]
    if not gradients:
        return 0.0
    norms = torch.stack([norm.double() for norm in torch._foreach_norm(gradients)])
    return fsum(norms.square().tolist())


def clip_factor(total: float, clip: float) -> float:
    """Return the factor that clips gradients with sum of squares ``total`` to the norm ``clip``.

    >>> clip_factor(0.25, 1.0), round(clip_factor(4.0, 1.0), 6)
    (1.0, 0.5)
    """
    factor = clip / (sqrt(total) + _EPSILON)
    return 1.0 if factor >= 1 else factor  # a NaN norm gives a NaN factor


def scale_gradients(parameters: Iterable[nn.Parameter], total: float, clip: float) -> None:
    """Clip a party's gradients by the norm of all parties' gradients.

    Args:
        parameters: The party's trained weights.
        total: Sum of squares of the gradients of all parties.
        clip: Largest norm.
    """
    factor = clip_factor(total, clip)
    if factor == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
