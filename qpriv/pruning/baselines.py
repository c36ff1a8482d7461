"""Policies that know nothing of question or privacy: what any pruner has to beat."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from qpriv.datasets.sample import VQASample
from qpriv.models.features import VisualFeatures

from .budget import check_ratio, top_k
from .decision import PruningDecision
from .label import PolicyLabel
from .policy import PruningPolicy


class RandomPruning(PruningPolicy):
    """Drops random patches.

    The choice depends on the seed and the sample's key alone, so it is the same in every epoch,
    batch and process. With ``resample`` it is drawn anew at every call; the number of calls is
    part of the state, so a resumed run goes on with the next draw.

    Args:
        ratio: Share of patches to drop, in [0, 1].
        seed: Seed of the choice.
        resample: Draw anew at every call.
        k_min: Safety floor in patches; None scales the source's 16 of 576 to the grid.

    Raises:
        ConfigError: If the ratio is not in [0, 1].
    """

    draws: Tensor

    def __init__(
        self, ratio: float = 0.5, seed: int = 0, resample: bool = False, k_min: int | None = None
    ) -> None:
        check_ratio(ratio)
        super().__init__(k_min)
        self.ratio, self.seed, self.resample = ratio, seed, resample
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64))

    @classmethod
    def planned_ratio(cls, *, ratio: float | None = None, **arguments: Any) -> float | None:  # noqa: ANN401
        """Return the ratio that is given."""
        return ratio

    @property
    def name(self) -> PolicyLabel:
        """Return such as ``random(0.5)`` or ``random(0.5,resampled)``."""
        resampled = ("resampled",) if self.resample else ()
        return PolicyLabel("random", self.ratio, settings=resampled + self._floor_setting())

    @torch.no_grad()
    def decide(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        """Return random patches of each sample."""
        num_patches = features.patches.shape[1]
        score = torch.stack([self._score(sample.key, num_patches) for sample in samples])
        if self.resample:
            self.draws += 1
        ratios = [self.ratio] * len(samples)
        score = score.to(features.patches.device)
        return PruningDecision(
            kept=top_k(score, self.counts(ratios, num_patches)),
            num_patches=num_patches,
            ratio=torch.tensor(ratios, dtype=torch.float64),
            score=score,
        )

    def _score(self, key: str, num_patches: int) -> Tensor:
        name = f"{self.seed}/{int(self.draws)}/{key}"
        # a hash of our own: Python's is salted anew in every process
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        generator = torch.Generator().manual_seed(number)
        return torch.rand(num_patches, generator=generator, dtype=torch.float32)


class DownsamplePruning(PruningPolicy):
    """Averages the patches over a coarser grid: the honest control for any selection.

    Plain down-sampling beats many published pruners at equal token counts. Here the features
    are pooled, not the pixels: every merged token still saw the full resolution, which favours
    the control in accuracy and costs it in privacy. ``kept`` names the patch at the middle of
    each cell, whose position the merged token takes; the count is that of the nearest grid, so
    it can differ by a few from a ranking policy's.

    Args:
        ratio: Share of tokens to save, in [0, 1].
        k_min: Safety floor in patches; None scales the source's 16 of 576 to the grid.

    Raises:
        ConfigError: If the ratio is not in [0, 1].
    """

    def __init__(self, ratio: float = 0.5, k_min: int | None = None) -> None:
        check_ratio(ratio)
        super().__init__(k_min)
        self.ratio = ratio

    @classmethod
    def planned_ratio(cls, *, ratio: float | None = None, **arguments: Any) -> float | None:  # noqa: ANN401
        """Return the ratio that is given."""
        return ratio

    @property
    def name(self) -> PolicyLabel:
        """Return such as ``downsample(0.5)``."""
        return PolicyLabel("downsample", self.ratio, settings=self._floor_setting())

    @torch.no_grad()
    def decide(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        """Return the pooled patches of each sample."""
        batch, num_patches = features.patches.shape[:2]
        (count,) = self.counts([self.ratio], num_patches)
        coarse = coarser_grid(features.grid, count)
        pooled = _pool(features.patches.transpose(1, 2), features.grid, coarse)
        # what becomes of each patch alone is with which weight it enters each cell
        weights = _pool(torch.eye(num_patches)[None], features.grid, coarse)[0]
        middle = cell_centres(features.grid, coarse).to(features.patches.device)
        return PruningDecision(
            kept=(middle,) * batch,
            num_patches=num_patches,
            ratio=torch.full((batch,), self.ratio, dtype=torch.float64),
            merged=tuple(pooled),
            mixing=(weights.to(features.patches.device),) * batch,
        )


def _pool(planes: Tensor, grid: tuple[int, int], coarse: tuple[int, int]) -> Tensor:
    """Return the mean over each cell of planes ``[B, C, N]``, ``[B, cells, C]``."""
    cells = functional.adaptive_avg_pool2d(planes.reshape(*planes.shape[:2], *grid), coarse)
    return cells.flatten(2).transpose(1, 2)


def coarser_grid(grid: tuple[int, int], count: int) -> tuple[int, int]:
    """Return the grid of the same shape whose number of cells is nearest to ``count``.

    >>> coarser_grid((24, 24), 144), coarser_grid((8, 8), 32)
    ((12, 12), (6, 5))
    """
    rows = min(grid[0], max(1, round(math.sqrt(count * grid[0] / grid[1]))))
    return rows, min(grid[1], max(1, round(count / rows)))


def cell_centres(grid: tuple[int, int], coarse: tuple[int, int]) -> Tensor:
    """Return the index of the patch at the middle of each cell, ``[rows * columns]``.

    >>> cell_centres((4, 4), (2, 2)).tolist()
    [5, 7, 13, 15]
    """
    rows, columns = (
        (torch.arange(cells) * 2 + 1) * length // (2 * cells)
        for length, cells in zip(grid, coarse, strict=True)
    )
    return (rows[:, None] * grid[1] + columns).flatten()
