"""How many patches stay, and which of a ranking."""

from collections.abc import Iterable

import torch
from torch import Tensor

from qpriv.errors import ConfigError, ModelError

REFERENCE_K_MIN, REFERENCE_PATCHES = 16, 576
"""The safety floor of the source: 16 of the 576 patches of CLIP-L/14-336."""


def default_k_min(num_patches: int) -> int:
    """Return the source's safety floor scaled to a grid, and at least one patch.

    >>> default_k_min(576), default_k_min(64), default_k_min(16)
    (16, 2, 1)
    """
    return max(1, round(REFERENCE_K_MIN * num_patches / REFERENCE_PATCHES))


def check_ratio(ratio: float) -> None:
    """Check a pruning ratio.

    Raises:
        ConfigError: If it is not in [0, 1].
    """
    if not 0 <= ratio <= 1:
        raise ConfigError(
            f"pruning ratio is {ratio}", remedy="choose 0 (keep all) to 1 (keep k_min)"
        )


def kept_count(ratio: float, num_patches: int, k_min: int = 16) -> int:
    """Return how many patches stay: ``max(k_min, round((1 - ratio) N))``, source section 6.

    Halves round to the even number, as `round` does.

    Args:
        ratio: Share of patches to drop, in [0, 1].
        num_patches: Number of patches ``N``.
        k_min: Safety floor; see `default_k_min` for grids other than 24 x 24.

    Raises:
        ConfigError: If the ratio is not in [0, 1], or ``k_min`` not in [0, N].

    >>> kept_count(0.5, 576), kept_count(1.0, 576), kept_count(0.5, 5, k_min=1)
    (288, 16, 2)
    """
    check_ratio(ratio)
    if not 0 <= k_min <= num_patches:
        raise ConfigError(
            f"k_min is {k_min} with {num_patches} patches", remedy=f"choose 0 to {num_patches}"
        )
    return max(k_min, round((1 - ratio) * num_patches))


def top_k(score: Tensor, counts: Iterable[int]) -> tuple[Tensor, ...]:
    """Return for each row the indices of its highest scores, in ascending order.

    Of equal scores the one with the lower index stays, so a result depends on nothing but its
    own row.

    Args:
        score: Score of every patch, ``[B, N]``.
        counts: How many to keep of each row.

    Raises:
        ModelError: If a score is not a number.

    >>> top_k(torch.tensor([[0.1, 0.9, 0.9, 0.5]]), [2])
    (tensor([1, 2]),)
    """
    if score.isnan().any():
        raise ModelError("a patch score is not a number", remedy="check the predictor's weights")
    order = score.argsort(dim=-1, descending=True, stable=True)
    wanted = torch.tensor(list(counts), device=score.device).clamp(0, score.shape[-1])
    places = torch.arange(score.shape[-1], device=score.device)
    best = torch.zeros_like(score, dtype=torch.bool)
    best.scatter_(-1, order, places < wanted[:, None])
    return torch.split(best.nonzero()[:, 1], wanted.tolist())
