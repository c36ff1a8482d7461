"""Intervals: how far a figure could be off, given how few independent images it rests on."""

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Interval = tuple[float, float]
Weights = NDArray[np.int64]


def wilson_interval(successes: int, n: int, z: float = 1.959964) -> Interval:
    """Return the Wilson score interval of a share (Wilson 1927), 95 % by default.

    >>> [round(end, 4) for end in wilson_interval(8, 10)]
    [0.4902, 0.9433]
    """
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def group_weights(
    groups: Sequence[Hashable], resamples: int = 1000, seed: int = 0
) -> NDArray[np.int64]:
    """Return how often each row is drawn in each bootstrap resample of whole groups.

    Rows of one image (or patient) are drawn together, since they are not independent.

    Args:
        groups: The group of every row, ``n`` of them.
        resamples: Number of resamples ``R``.
        seed: Seed of the draw.

    Returns:
        Counts ``[R, n]``.
    """
    _, numbers = np.unique([str(group) for group in groups], return_inverse=True)
    count = int(numbers.max()) + 1 if len(numbers) else 0
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(count, np.full(count, 1 / max(count, 1)), size=resamples)
    return np.asarray(drawn[:, numbers], dtype=np.int64)


def bootstrap_interval(
    groups: Sequence[Hashable],
    statistic: Callable[[Weights], float],
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval | None:
    """Return the percentile bootstrap interval over groups of a weighted statistic.

    Args:
        groups: The group of every row.
        statistic: From how often each row counts ``[n]`` to the figure; NaN where it has none.
        level: Coverage.
        resamples: Number of resamples.
        seed: Seed of the draw.

    Returns:
        The interval, or None with fewer than two groups.
    """
    if len(set(groups)) < 2:
        return None
    drawn = [statistic(weights) for weights in group_weights(groups, resamples, seed)]
    finite = np.asarray([value for value in drawn if not math.isnan(value)])
    if not len(finite):
        return None
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mean_interval(
    values: ArrayLike, groups: Sequence[Hashable], *, resamples: int = 1000, seed: int = 0
) -> Interval | None:
    """Return the bootstrap interval over groups of a mean; rows that are NaN are left out.

    >>> mean_interval([1.0, 1.0, 1.0], ["a", "b", "c"])
    (1.0, 1.0)
    """
    array = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(array)
    array = array[known]
    kept = [group for group, keep in zip(groups, known, strict=True) if keep]
    return bootstrap_interval(
        kept, lambda weights: weighted_mean(array, weights), resamples=resamples, seed=seed
    )


def rate_interval(hits: ArrayLike, groups: Sequence[Hashable]) -> Interval | None:
    """Return the bootstrap interval over groups of a share of hits, which is never of no width.

    Where all hits are alike, every resample is too; then Wilson's interval over as many trials as
    there are groups stands in.

    Args:
        hits: 1 or 0 each; NaN does not count.
        groups: The group of every hit.

    >>> [round(end, 3) for end in rate_interval([1, 1, 1, 1], "aabb")]
    [0.342, 1.0]
    """
    array = np.asarray(hits, dtype=np.float64)
    known = {group for group, hit in zip(groups, array, strict=True) if not np.isnan(hit)}
    shares = np.unique(array[~np.isnan(array)])
    if len(shares) == 1:
        return wilson_interval(len(known) if shares[0] else 0, len(known))
    return mean_interval(array, groups)


def weighted_mean(values: NDArray[np.float64], weights: Weights) -> float:
    """Return the mean of values that count several times, NaN where nothing counts."""
    total = weights.sum()
    return float(values @ weights / total) if total else math.nan
