"""Means of LoRA adapters: of their factors, or of the factors' products.

FedAvg of adapters usually averages A and B separately. This is not the mean of the updates
``B A``: the mean of products differs from the product of means by the covariance of the factors.
This module has both means, and measures their error.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

AverageName = Literal["factors", "products"]

Adapter = Mapping[str, Tensor]
"""Weights by name, ``....lora_A.weight`` as ``[r, in]`` and ``....lora_B.weight`` as ``[out, r]``."""

_A, _B = "lora_A.weight", "lora_B.weight"


def average_factors(adapters: Sequence[Adapter], weights: Sequence[float]) -> dict[str, Tensor]:
    """Return the weighted mean of every weight (FedAvg, McMahan et al. 2017, algorithm 1).

    >>> mean = average_factors([{"w": torch.tensor(1.0)}, {"w": torch.tensor(4.0)}], [2, 1])
    >>> float(mean["w"])
    2.0
    """
    total = sum(weights)
    return {
        name: sum(
            (own[name].double() * (w / total) for own, w in zip(adapters, weights, strict=True)),
            start=torch.zeros((), dtype=torch.float64, device=value.device),
        ).to(value.dtype)
        for name, value in adapters[0].items()
    }


def average_products(adapters: Sequence[Adapter], weights: Sequence[float]) -> dict[str, Tensor]:
    """Return the best rank-r factors of the weighted mean of the updates ``B A``.

    The mean of N updates of rank r has a rank of up to N r. Keeping its r largest singular values
    gives the closest matrix of rank r (Eckart and Young 1936). The rows of A get the clients' mean
    row norm, and B holds the singular values, so that no direction of A vanishes.
    """
    result = dict(average_factors(adapters, weights))
    for name in _pairs(adapters[0]):
        left, right = _stacked(adapters, weights, name)
        basis_left, core_left = torch.linalg.qr(left)
        basis_right, core_right = torch.linalg.qr(right.T)
        u, s, vt = torch.linalg.svd(core_left @ core_right.T)
        rank = adapters[0][name + _A].shape[0]
        length = torch.stack([own[name + _A].double().norm(dim=1).mean() for own in adapters])
        scale = length.mean().clamp(min=torch.finfo(torch.float32).tiny)
        for key, value in (
            (_A, scale * vt[:rank] @ basis_right.T),
            (_B, basis_left @ u[:, :rank] * s[:rank] / scale),
        ):
            result[name + key] = value.to(adapters[0][name + key].dtype)
    return result


def product_error(mean: Adapter, adapters: Sequence[Adapter], weights: Sequence[float]) -> float:
    """Return the relative error of an adapter's updates against the mean of the clients' updates.

    This is the Frobenius norm of the difference over all layers, divided by that of the mean.
    """
    lost = sent = 0.0
    for name in _pairs(mean):
        left, right = _stacked(adapters, weights, name)
        own_left, own_right = mean[name + _B].double(), mean[name + _A].double()
        sent += _square(left, right)
        lost += _square(torch.cat((left, -own_left), 1), torch.cat((right, own_right)))
    return (lost / sent) ** 0.5 if sent else 0.0


def _pairs(adapter: Adapter) -> list[str]:
    return [name.removesuffix(_A) for name in adapter if name.endswith(_A)]


def _stacked(
    adapters: Sequence[Adapter], weights: Sequence[float], name: str
) -> tuple[Tensor, Tensor]:
    """Return ``[out, N r]`` and ``[N r, in]`` whose product is the mean of the updates."""
    total = sum(weights)
    left = [own[name + _B].double() * (w / total) for own, w in zip(adapters, weights, strict=True)]
    return torch.cat(left, 1), torch.cat([own[name + _A].double() for own in adapters])


def _square(left: Tensor, right: Tensor) -> float:
    """Return the squared Frobenius norm of a product without computing the product."""
    core = torch.linalg.qr(left).R @ torch.linalg.qr(right.T).R.T
    return float(core.square().sum())
