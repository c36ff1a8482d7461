"""`PixelReader`: the pixels of every patch that crossed, read linearly off its token.

No network is trained: ridge regression from a token to the pixels of its own patch, on what crosses
of the attacker's own scenes. How far it is off on scenes it was not fitted on says how much each
pixel is to be trusted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qpriv.metrics.reconstruction import patch_pixels

from ...observation import Scenes
from ...token_grid import TokenGrid
from ..inverter import to_patches

FACE_WEIGHT = 10.0
"""How much more a patch on a face counts in a regression."""

PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Ridge penalties that are tried."""

CHUNK = 16384
"""Patches whose moments are taken at once."""

HELD_OUT = 4
"""Each of so many scenes is kept back to measure what the reader does not explain."""


@dataclass(frozen=True)
class Crossed:
    """Scenes of which somebody knows the truth, and the tokens that crossed of them.

    Args:
        tokens: On the grid.
        scenes: The truth.
    """

    tokens: TokenGrid
    scenes: Scenes

    def __len__(self) -> int:
        """Return the number of scenes."""
        return len(self.scenes)

    def patches(self, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return what crossed patch by patch, ``[m, ...]``.

        Returns:
            Tokens ``[m, d]``, pixels ``[m, 3 * size**2]``, whether a patch touches a face ``[m]``,
            and whether its scene is held out ``[m]``.
        """
        present = self.tokens.present
        face = to_patches(self.scenes.sensitive[:, None].float(), size).amax(dim=-1) > 0
        held = (torch.arange(len(self)) % HELD_OUT == HELD_OUT - 1)[:, None].expand_as(present)
        pixels = to_patches(self.scenes.pictures, size)
        return (self.tokens.tokens[present], pixels[present], face[present], held[present])


def gathered(known: Sequence[Crossed], size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the patches of several lots of scenes, as `Crossed.patches` does of one."""
    tokens, pixels, face, held = zip(*(own.patches(size) for own in known), strict=True)
    return torch.cat(tokens), torch.cat(pixels), torch.cat(face), torch.cat(held)


@dataclass(frozen=True)
class Reading:
    """What was read of some scenes.

    Args:
        pictures: ``[n, 3, H, W]``; where nothing crossed it means nothing.
        variance: Mean squared error of each pixel where a patch crossed, ``[3, H, W]``.
        crossed: Pixels in patches that crossed, ``[n, H, W]`` bool.
    """

    pictures: Tensor
    variance: Tensor
    crossed: Tensor


@dataclass(frozen=True)
class PixelReader:
    """A linear map from tokens to pixels.

    Args:
        mean: Mean token, ``[d]``.
        scale: Spread of each of its numbers, ``[d]``.
        weight: ``[d, 3 * size**2]``.
        bias: ``[3 * size**2]``.
        variance: Mean squared error of each pixel in patches on faces, ``[3 * size**2]``.
        size: Side of a patch in pixels.
    """

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor
    variance: Tensor
    size: int

    @classmethod
    def fit(cls, known: Sequence[Crossed], size: int) -> "PixelReader":
        """Fit it on scenes of the attacker's own; a fourth of them chooses the penalty.

        Args:
            known: The scenes.
            size: Side of a patch in pixels.
        """
        tokens, pixels, face, held = gathered(known, size)
        mean, scale = tokens.mean(dim=0), tokens.std(dim=0).clamp(min=1e-6)
        inputs = (tokens - mean) / scale
        penalty, error = chosen_penalty(inputs, pixels, face, held)
        weight, bias = Moments.of(inputs, pixels, counted(face)).ridge(penalty)
        # no pixel is read better than an 8-bit picture stores it
        variance = error.square().mean(dim=0).clamp(min=1 / 255**2)
        return cls(mean, scale, weight, bias, variance, size)

    def read(self, grid: TokenGrid, shape: tuple[int, int]) -> Reading:
        """Read what crossed of some scenes.

        Args:
            grid: Tokens on the grid.
            shape: Rows and columns of patches.
        """
        patches = (grid.tokens - self.mean) / self.scale @ self.weight + self.bias
        size = (shape[0] * self.size, shape[1] * self.size)
        spread = self.variance.expand(1, shape[0] * shape[1], -1)
        return Reading(
            assembled(patches, shape, self.size),
            assembled(spread, shape, self.size)[0],
            patch_pixels(grid.present, shape, size),
        )


@dataclass(frozen=True)
class Moments:
    """Second moments of a regression whose rows count unequally.

    Args:
        centre: Mean of the inputs, ``[d]``.
        level: Mean of the targets, ``[t]``.
        within: Of inputs with inputs, ``[d, d]``.
        across: Of inputs with targets, ``[d, t]``.
    """

    centre: Tensor
    level: Tensor
    within: Tensor
    across: Tensor

    @classmethod
    def of(cls, inputs: Tensor, targets: Tensor, weights: Tensor) -> "Moments":
        """Gather them of inputs ``[m, d]`` and targets ``[m, t]`` under weights ``[m]``."""
        share = (weights / weights.sum()).double()[:, None]
        # part by part: a second copy of all tokens, twice as wide, would not fit
        parts = [slice(start, start + CHUNK) for start in range(0, len(share), CHUNK)]
        centre, level = (
            torch.stack([(own[part] * share[part]).sum(dim=0) for part in parts]).sum(dim=0)
            for own in (inputs, targets)
        )
        within = centre.new_zeros(len(centre), len(centre))
        across = centre.new_zeros(len(centre), len(level))
        for part in parts:
            x, y = inputs[part] - centre, targets[part] - level
            within += x.T @ (x * share[part])
            across += x.T @ (y * share[part])
        return cls(centre, level, within, across)

    def ridge(self, penalty: float) -> tuple[Tensor, Tensor]:
        """Return weight ``[d, t]`` and bias ``[t]`` under a penalty.

        Args:
            penalty: As a share of the mean of the diagonal of the inputs' moments.
        """
        added = penalty * self.within.diagonal().mean() + 1e-12
        stiff = self.within + added * torch.eye(len(self.within), dtype=self.within.dtype)
        weight = torch.linalg.solve(stiff, self.across)
        return weight.float(), (self.level - self.centre @ weight).float()


def counted(face: Tensor) -> Tensor:
    """Return how much each patch counts: those on faces are few, and what is asked for."""
    return torch.where(face, FACE_WEIGHT, 1.0)


def chosen_penalty(
    inputs: Tensor, targets: Tensor, face: Tensor, held: Tensor
) -> tuple[float, Tensor]:
    """Return the penalty that predicts held-out patches on faces best, and its errors there.

    Without a held-out face all patches judge.

    Args:
        inputs: ``[m, d]``.
        targets: ``[m, t]``.
        face: Which patches touch a face, ``[m]``.
        held: Which are held out, ``[m]``.
    """
    judged = held & face
    part = ~held if judged.any() and not held.all() else torch.ones_like(held)
    judged = judged if judged.any() else part
    moments = Moments.of(inputs[part], targets[part], counted(face[part]))

    def errors(penalty: float) -> Tensor:
        weight, bias = moments.ridge(penalty)
        return targets[judged] - inputs[judged] @ weight - bias

    best = min(PENALTIES, key=lambda penalty: float(errors(penalty).square().mean()))
    return best, errors(best)


def assembled(patches: Tensor, shape: tuple[int, int], size: int) -> Tensor:
    """Return patches ``[n, N, c * size**2]`` as pictures ``[n, c, H, W]``."""
    rows, columns = shape
    channels = patches.shape[-1] // size**2
    cells = patches.reshape(-1, rows, columns, channels, size, size)
    placed = cells.permute(0, 3, 1, 4, 2, 5)
    return placed.reshape(-1, channels, rows * size, columns * size)
