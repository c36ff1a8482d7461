"""Residual leak: what the kept tokens reveal about dropped patches.

A vision tower mixes its patches before pruning, so a kept token holds more than its own pixels,
and dropping a patch does not remove all its content. The residual leak is the quality of an
inverter's reconstruction there, minus that of a reconstruction from the *pixels* of the kept
patches: scenes are smooth, and a guess from the neighbourhood is not a leak.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from qpriv.declaration import aside
from qpriv.metrics.reconstruction import psnr
from qpriv.models.precision import full_precision
from qpriv.quantity import Quantity
from qpriv.result import Result

from ..observation import Scenes
from .inverter import to_patches
from .scoring import figure

RESIDUAL = Quantity(
    name="residual_gain",
    title="Residual leak, dB",
    meaning="In dropped patches: gain over painting them from the true colours of the kept ones.",
    unit="dB",
    direction="leak",
)
QUANTITIES = (
    RESIDUAL,
    *aside(
        [
            Quantity(
                name="residual_psnr",
                title="PSNR of patches that never crossed, dB",
                meaning="How well dropped patches are repainted.",
                unit="dB",
                direction="leak",
                baseline="residual_floor_inpainting",
            ),
            Quantity(
                name="residual_floor_inpainting",
                title="Floor: in-painting, dB",
                meaning="What the true colours of the kept patches give.",
                unit="dB",
            ),
            Quantity(
                name="residual_floor_mean_image",
                title="Floor: mean image in dropped patches, dB",
                meaning="What an average scene gives there.",
                unit="dB",
            ),
        ]
    ),
)
"""Figures of `residual_report`."""


@dataclass(frozen=True)
class Inpainter:
    """Paints dropped patches from the true colours of the kept ones, as well as any line can.

    The conditional mean of a Gaussian: colours of dropped patches given those of kept ones, fitted
    on auxiliary pictures. What a patch looks like beyond its colour is taken from the mean image.

    Args:
        mean_image: Mean auxiliary picture, ``[3, H, W]``.
        mean: Mean colours of all patches, ``[3 N]``.
        covariance: Their covariance, ``[3 N, 3 N]``, a little of its diagonal added.
        grid: Rows and columns of patches.
    """

    mean_image: Tensor
    mean: Tensor
    covariance: Tensor
    grid: tuple[int, int]

    @classmethod
    def of(cls, pictures: Tensor, grid: tuple[int, int], penalty: float = 1e-2) -> "Inpainter":
        """Fit it on auxiliary pictures.

        Args:
            pictures: ``[m, 3, H, W]`` in [0, 1].
            grid: Rows and columns of patches.
            penalty: What is added to the diagonal, as a share of its mean.
        """
        colours = _colours(pictures, grid)
        centred = colours - colours.mean(dim=0)
        covariance = centred.T @ centred / max(1, len(colours) - 1)
        ridge = penalty * covariance.diagonal().mean() + 1e-9
        covariance = covariance + ridge * torch.eye(len(covariance), dtype=covariance.dtype)
        return cls(pictures.mean(dim=0), colours.mean(dim=0), covariance, grid)

    def paint(self, pictures: Tensor, kept: Sequence[Tensor]) -> Tensor:
        """Return pictures of which only the kept patches were looked at, ``[n, 3, H, W]``.

        Every patch is painted, the kept ones in their true colour.

        Args:
            pictures: The true pictures, ``[n, 3, H, W]``.
            kept: Patches of each that may be looked at, ``[k_i]``.
        """
        colours = _colours(pictures, self.grid)
        shifts = torch.stack(
            [self._conditional(own, places) for own, places in zip(colours, kept, strict=True)]
        )
        planes = (shifts - self.mean).float().reshape(-1, *self.grid, 3).permute(0, 3, 1, 2)
        size = (pictures.shape[-2], pictures.shape[-1])
        painted: Tensor = self.mean_image + interpolate(planes, size, mode="nearest")
        return painted

    def _conditional(self, colours: Tensor, kept: Tensor) -> Tensor:
        """Return the expected colours of all patches given those of the kept ones, ``[3 N]``."""
        seen = (3 * kept.cpu()[:, None] + torch.arange(3)).flatten()
        within = self.covariance[seen][:, seen]
        told = torch.linalg.solve(within, colours[seen] - self.mean[seen])
        expected: Tensor = self.mean + self.covariance[:, seen] @ told
        expected[seen] = colours[seen]
        return expected


@full_precision()
def residual_report(
    restored: Tensor,
    truth: Scenes,
    kept: Sequence[Tensor],
    grid: tuple[int, int],
    auxiliary: Scenes,
) -> list[Result]:
    """Return what a reconstruction is worth in the patches that never crossed.

    ``residual_psnr`` over the dropped patches, ``residual_floor_mean_image``,
    ``residual_floor_inpainting``, which saw the kept patches' true colours, and
    ``residual_gain``, the paired difference to the better-informed floor: where its interval
    lies above zero, tokens leak of dropped patches what their own pixels do not show.

    Args:
        restored: Reconstructions, ``[n, 3, H, W]``.
        truth: The private scenes.
        kept: The patches of each that crossed.
        grid: Rows and columns of patches.
        auxiliary: The attacker's scenes, on which the floors are fitted.
    """
    region = ~truth.regions(kept, grid).kept
    floor = Inpainter.of(auxiliary.pictures, grid)
    mean_image = floor.mean_image.expand_as(truth.pictures)
    ours = psnr(restored, truth.pictures, region)
    painted = psnr(floor.paint(truth.pictures, kept), truth.pictures, region)
    return [
        figure("residual_psnr", ours, truth, "dB"),
        figure("residual_floor_mean_image", psnr(mean_image, truth.pictures, region), truth, "dB"),
        figure("residual_floor_inpainting", painted, truth, "dB"),
        figure("residual_gain", ours - painted, truth, "dB"),
    ]


def _colours(pictures: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return the mean colour of every patch, ``[n, 3 N]``, in double precision."""
    size = pictures.shape[-1] // grid[1]
    patches = to_patches(pictures, size)
    colours: Tensor = patches.reshape(*patches.shape[:2], 3, size * size).double().mean(dim=3)
    return colours.flatten(1)
