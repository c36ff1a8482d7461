"""Sensitivity branch: how private a patch is (source section 4), learned from bags of patches."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from qpriv.models.features import VisualFeatures

BagPooling = Literal["mean", "top_k", "lse"]


class SensitivityHead(nn.Module):
    """An MLP on DINOv2 patches: two hidden layers with GELU, and a sigmoid.

    Args:
        feature_dim: Values ``Dd`` of a patch (384 for ViT-S/14).
        hidden_dim: Width of the hidden layers (128 in the source).
    """

    def __init__(self, feature_dim: int = 384, hidden_dim: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(feature_dim, hidden_dim),
            nn.GELU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.GELU(),
            nn.Linear(hidden_dim, 1),
        )

    def logits(self, patches: Tensor) -> Tensor:
        """Return the sensitivity before the sigmoid, ``[B, M]``, of patches ``[B, M, Dd]``."""
        values: Tensor = self.layers(patches)
        return values.squeeze(-1)

    def forward(self, patches: Tensor) -> Tensor:
        """Return the sensitivity, ``[B, M]`` in (0, 1), of patches ``[B, M, Dd]``."""
        return torch.sigmoid(self.logits(patches))

    def aligned(self, features: VisualFeatures) -> Tensor:
        """Return the sensitivity of the CLIP patches, ``[B, N]`` in (0, 1)."""
        return resize_grid(self(features.sensitivity), features.sensitivity_grid, features.grid)


def resize_grid(values: Tensor, source: tuple[int, int], target: tuple[int, int]) -> Tensor:
    """Resize a map of patches bilinearly, ``[B, M]`` to ``[B, N]``.

    Args:
        values: One value a patch, rows of the grid one after another.
        source: Rows and columns of ``values``.
        target: Rows and columns of the result.

    >>> resize_grid(torch.tensor([[0.0, 1.0]]), (1, 2), (1, 4)).tolist()
    [[0.0, 0.25, 0.75, 1.0]]
    """
    if source == target:
        return values
    plane = values.reshape(-1, 1, *source)
    resized = functional.interpolate(plane, size=target, mode="bilinear", align_corners=False)
    return resized.flatten(1)


def bag_logits(patch_logits: Tensor, pooling: BagPooling = "mean") -> Tensor:
    """Pool patches to one logit an image, ``[B, M]`` to ``[B]``: multiple-instance learning.

    The source gives image-level labels and does not say how patches are pooled. ``mean`` is the
    mean probability, whose scores are smooth; ``top_k`` the mean of the highest sixteenth of the
    logits; ``lse`` the log of the mean exponential, a smooth maximum. The last two localise even
    on poor features, but their scores are sparse.

    Args:
        patch_logits: Sensitivity before the sigmoid.
        pooling: Rule.

    >>> bag_logits(torch.tensor([[0.0, 0.0, 0.0]]), "mean").tolist()
    [0.0]
    """
    if pooling == "mean":
        # the logit of the mean probability; the number of patches cancels
        inside = functional.logsigmoid(patch_logits).logsumexp(dim=-1)
        return inside - functional.logsigmoid(-patch_logits).logsumexp(dim=-1)
    num_patches = patch_logits.shape[-1]
    if pooling == "top_k":
        return patch_logits.topk(max(1, num_patches // 16), dim=-1).values.mean(dim=-1)
    return patch_logits.logsumexp(dim=-1) - math.log(num_patches)


def bag_loss(patch_logits: Tensor, labels: Tensor, pooling: BagPooling = "mean") -> Tensor:
    """Return the binary cross-entropy of bags, mean over the batch, in nats.

    Args:
        patch_logits: Sensitivity before the sigmoid, ``[B, M]``.
        labels: 1 where the image holds something sensitive, else 0, ``[B]``.
        pooling: Rule of `bag_logits`.
    """
    pooled = bag_logits(patch_logits, pooling)
    return functional.binary_cross_entropy_with_logits(pooled, labels.to(pooled.dtype))
