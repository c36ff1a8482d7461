"""Gradient magnitude similarity deviation (GMSD).

A blurred face can have a good PSNR and say nothing; measures of learned features need weights
that must be fetched. Gradient magnitudes need none.
"""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d

STABILITY = 170 / 255**2
"""The published constant ``c`` (equation 4), for pictures in [0, 1] instead of [0, 255]."""


def gmsd(restored: Tensor, truth: Tensor) -> Tensor:
    """Return the gradient magnitude similarity deviation of each image; 0 is an exact copy.

    Xue et al. 2014, *Gradient Magnitude Similarity Deviation* (equations 1 to 6): on luminance at
    half the size, Prewitt gradients, and the standard deviation of their similarity over pixels.

    Args:
        restored: Reconstructions ``[B, 3, H, W]``; clamped to [0, 1].
        truth: The pictures ``[B, 3, H, W]`` in [0, 1].

    Returns:
        Deviations ``[B]`` in [0, 0.5].

    >>> gmsd(torch.ones(1, 3, 8, 8), torch.ones(1, 3, 8, 8)).tolist()
    [0.0]
    """
    ours, theirs = (_edges(pictures) for pictures in (restored.clamp(0, 1), truth))
    similarity = (2 * ours * theirs + STABILITY) / (ours**2 + theirs**2 + STABILITY)
    deviation: Tensor = similarity.flatten(1).std(dim=1, correction=0)
    return deviation


def _edges(pictures: Tensor) -> Tensor:
    """Return the magnitude of the luminance's gradient, ``[B, 1, H / 2, W / 2]``."""
    weights = pictures.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    luminance = avg_pool2d((pictures * weights).sum(dim=1, keepdim=True), 2)
    across = pictures.new_tensor([[1.0, 0, -1]] * 3) / 3
    filters = torch.stack([across, across.T]).unsqueeze(1)
    magnitude: Tensor = conv2d(luminance, filters, padding=1).norm(dim=1, keepdim=True)
    return magnitude
