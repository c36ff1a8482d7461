"""Clipping by the norm of all gradients, where no party sees all of them.

Parties exchange one number each, the sum of squares of their own gradients, and scale by the
norm of the whole. So clipping is the same whoever owns which layers. A sum is a double: what
rounding the order of summation leaves is 29 bits below the last bit of a gradient.
"""

from collections.abc import Iterable
from math import fsum, sqrt

import torch
from torch import Tensor, nn

from qpriv.models.precision import widened

_EPSILON = 1e-6  # as in `torch.nn.utils.clip_grad_norm_`


def square_norm(parameters: Iterable[nn.Parameter], scale: float = 1.0) -> float:
    """Return the sum of squares of the gradients of one party.

    Args:
        parameters: What the party trains.
        scale: By what its gradients are multiplied, where the loss is scaled.

    >>> weight = nn.Parameter(torch.zeros(2)); weight.grad = torch.tensor([3.0, 4.0])
    >>> square_norm([weight, nn.Parameter(torch.zeros(1))])
    25.0
    """
    return sum_of_squares(p.grad for p in parameters if p.grad is not None) / scale**2


def sum_of_squares(tensors: Iterable[Tensor]) -> float:
    """Return the sum of squares of all numbers of some tensors; 0 where there is none."""
    gradients = [widened(each) for each in tensors]
    if not gradients:
        return 0.0
    norms = torch.stack([norm.double() for norm in torch._foreach_norm(gradients)])
    return fsum(norms.square().tolist())


def clip_factor(total: float, clip: float) -> float:
    """Return what scales gradients with a sum of squares ``total`` to a norm of at most ``clip``.

    >>> clip_factor(0.25, 1.0), round(clip_factor(4.0, 1.0), 6)
    (1.0, 0.5)
    """
    factor = clip / (sqrt(total) + _EPSILON)
    return 1.0 if factor >= 1 else factor  # a norm that is no number makes the step none either


def scale_gradients(parameters: Iterable[nn.Parameter], total: float, clip: float) -> None:
    """Scale a party's gradients so that those of all parties have a norm of at most ``clip``.

    Args:
        parameters: What the party trains.
        total: Sum of squares of the gradients of all parties.
        clip: The largest norm.
    """
    factor = clip_factor(total, clip)
    if factor == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
