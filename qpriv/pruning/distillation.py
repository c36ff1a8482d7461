"""What the student is fitted to: ``L_KD = lambda_rho L_rho + lambda_m L_m`` (source section 8)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from .predictor import PredictorOutput

UtilityTarget = Literal["random", "grounded"]
"""Utility the mask target is made of: the source's random scorer, or gradient times input."""


@dataclass(frozen=True)
class DistillationLoss:
    """The loss and its parts.

    Args:
        total: ``lambda_rho L_rho + lambda_m L_m``.
        ratio: ``L_rho``.
        mask: ``L_m``; its floor is the entropy of the soft target, not 0.
    """

    total: Tensor
    ratio: Tensor
    mask: Tensor


def mask_target(
    utility: Tensor,
    sensitivity: Tensor,
    alpha: float = 1.0,
    beta: float = 1.0,
    gamma: float = 3.0,
) -> Tensor:
    """Return the soft mask the student is to reproduce, ``[B, N]`` in (0, 1).

    Args:
        utility: From the random scorer, or the rank of `grounded_utility`, ``[B, N]``.
        sensitivity: The teacher's sensitivity on the CLIP grid, ``[B, N]``.
        alpha: Weight of utility.
        beta: Weight of sensitivity.
        gamma: Steepness; the student's start value.

    >>> mask_target(torch.tensor([[0.5]]), torch.tensor([[0.5]])).tolist()
    [[0.5]]
    """
    return torch.sigmoid(gamma * (alpha * utility - beta * sensitivity))


def ratio_loss(predicted: Tensor, teacher: Tensor, oracle: Tensor) -> Tensor:
    """Return ``L_rho``: squared error to the teacher's ratio plus that to the hard oracle.

    All are ``[B]``; the source names both targets and no weights, so they count alike.

    >>> ratio_loss(torch.tensor([0.5]), torch.tensor([0.5]), torch.tensor([1.0])).item()
    0.25
    """
    return functional.mse_loss(predicted, teacher.to(predicted)) + known_error(predicted, oracle)


def known_error(predicted: Tensor, target: Tensor) -> Tensor:
    """Return the squared error, mean over the rows whose target is known; 0 where none is.

    Args:
        predicted: Predicted ratios, ``[B]``.
        target: Ratios to reproduce, NaN where not known, ``[B]``.

    >>> known_error(torch.tensor([0.5, 0.0]), torch.tensor([0.0, torch.nan])).item()
    0.25
    """
    known = ~target.isnan()
    if not known.any():
        return predicted.sum() * 0
    return functional.mse_loss(predicted[known], target[known].to(predicted))


def mask_loss(mask_logits: Tensor, target: Tensor) -> Tensor:
    """Return ``L_m``: binary cross-entropy of the soft mask, mean over patches, in nats.

    Args:
        mask_logits: The student's mask before the sigmoid, ``[B, N]``.
        target: The soft mask to reproduce, ``[B, N]``.
    """
    return functional.binary_cross_entropy_with_logits(mask_logits, target.to(mask_logits))


def distillation_loss(
    output: PredictorOutput,
    *,
    teacher_ratio: Tensor,
    oracle_ratio: Tensor,
    mask: Tensor,
    lambda_rho: float = 1.0,
    lambda_m: float = 1.0,
) -> DistillationLoss:
    """Return the student's loss.

    Args:
        output: What the student thinks of a batch.
        teacher_ratio: Ratios of the threshold teacher, ``[B]``.
        oracle_ratio: Ratios of the oracle search, ``[B]``.
        mask: Target of the soft mask, ``[B, N]``.
        lambda_rho: Weight of the ratios.
        lambda_m: Weight of the mask.
    """
    ratio = ratio_loss(output.ratio, teacher_ratio, oracle_ratio)
    fit = mask_loss(output.mask_logits, mask)
    return DistillationLoss(lambda_rho * ratio + lambda_m * fit, ratio, fit)
