"""How much of a picture an attacker got back, per image, overall and in a region."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

PERFECT_DB = 100.0
"""PSNR reported for an exact copy (mean squared error below 1e-10), instead of infinity."""

_EDGE = 5
"""Pixels at each edge of a picture over which the window of SSIM, 11 pixels wide, reaches."""


def psnr(restored: Tensor, truth: Tensor, region: Tensor | None = None) -> Tensor:
    """Return the peak signal-to-noise ratio of each image, data range 1.

    Average these over images; the PSNR of a pooled error is another, larger-image-biased figure.

    Args:
        restored: Reconstructions ``[B, 3, H, W]``; clamped to [0, 1].
        truth: The pictures ``[B, 3, H, W]`` in [0, 1].
        region: Pixels that count ``[B, H, W]`` bool; None for all.

    Returns:
        Decibels ``[B]``, at most `PERFECT_DB`; NaN where the region is empty.

    >>> psnr(torch.full((1, 3, 4, 4), 0.5), torch.full((1, 3, 4, 4), 0.6)).round().tolist()
    [20.0]
    """
    error = (restored.clamp(0, 1) - truth).square().mean(dim=1)
    floor = 10 ** (-PERFECT_DB / 10)
    return -10 * torch.log10(_region_mean(error, region).clamp(min=floor))


def ssim(restored: Tensor, truth: Tensor, region: Tensor | None = None) -> Tensor:
    """Return the structural similarity of each image (Wang 2004), data range 1.

    The similarity map is averaged over the region's pixels, so its window of 11 pixels looks a
    little beyond a small region. As in the source and in scikit-image, pixels whose window
    would reach over the edge of the picture do not count. Arguments and shapes as in `psnr`.

    Returns:
        Similarities ``[B]``, at most 1; NaN where no pixel of the region has a whole window.
    """
    _, similarity = structural_similarity_index_measure(
        restored.clamp(0, 1), truth, data_range=1.0, reduction="none", return_full_image=True
    )
    inside = (..., slice(_EDGE, -_EDGE), slice(_EDGE, -_EDGE))
    cropped = None if region is None else region[inside]
    return _region_mean(similarity.mean(dim=1)[inside], cropped)


def _region_mean(values: Tensor, region: Tensor | None) -> Tensor:
    if region is None:
        return values.flatten(1).mean(dim=1)
    weights = region.to(values.dtype).flatten(1)
    return (values.flatten(1) * weights).sum(dim=1) / weights.sum(dim=1)  # 0 / 0 is NaN


@dataclass(frozen=True)
class Regions:
    """Which pixels of each picture are what, each ``[B, H, W]`` bool.

    Args:
        sensitive: Inside a sensitive box.
        kept: In a patch whose token crossed.
    """

    sensitive: Tensor
    kept: Tensor

    @property
    def named(self) -> dict[str, Tensor | None]:
        """Return every region by the suffix of its figure; the empty suffix is the whole."""
        return {"": None, "_sensitive": self.sensitive, "_kept": self.kept, "_dropped": ~self.kept}


def recovered_share(attack: float, floor: float, oracle: float) -> float:
    """Return how far from a floor towards an oracle an attack came; comparable over policies.

    >>> recovered_share(18.0, 14.0, 22.0)
    0.5
    """
    return (attack - floor) / (oracle - floor) if oracle != floor else math.nan


def patch_pixels(mask: Tensor, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Return a mask of patches ``[B, N]`` as one of pixels ``[B, H, W]``.

    >>> patch_pixels(torch.tensor([[True, False]]), (1, 2), (1, 4)).tolist()
    [[[True, True, False, False]]]
    """
    rows, columns = grid
    cells = mask.reshape(-1, rows, columns)
    tall = cells.repeat_interleave(size[0] // rows, dim=1)
    return tall.repeat_interleave(size[1] // columns, dim=2)
