"""Intervals: how far a figure could be off, given how few independent images it rests on."""

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Interval = tuple[float, float]
Weights = NDArray[np.int64]
Levels = Sequence[Sequence[Hashable]]
"""The unit of every row at each level, from the outside in."""


def wilson_interval(successes: float, n: int, z: float = 1.959964) -> Interval:
    """Return the Wilson score interval of a share (Wilson 1927), 95 % by default.

    It has some width even where none or all of ``n`` trials succeed.

    Args:
        successes: Number of successes, or the sum of ``n`` shares in [0, 1]: no such sum varies
            more than that of as many trials.
        n: Number of independent trials.
        z: Quantile of the normal distribution.

    >>> [round(end, 4) for end in wilson_interval(8, 10)]
    [0.4902, 0.9433]
    """
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def hierarchical_weights(levels: Levels, resamples: int = 1000, seed: int = 0) -> Weights:
    """Return how often each row counts in each resample of nested units.

    Units of the outermost level are drawn with replacement, as many as there are; within each
    that was drawn, units of the next level are drawn likewise, each time anew; rows of one
    innermost unit stay together (Davison and Hinkley 1997, section 3.8). With several levels the
    interval is a little too wide rather than too narrow.

    Args:
        levels: The unit of every row at each level, from the outside in: such as its person, then
            its image. Units of one name in two outer units are two units.
        resamples: Number of resamples ``R``.
        seed: Seed of the draw.

    Returns:
        Counts ``[R, n]``.
    """
    generator = np.random.default_rng(seed)
    rows = len(levels[0])
    units = np.zeros(rows, dtype=np.int64)
    counts = np.ones((resamples, 1), dtype=np.int64)
    for labels in levels:
        _, own = np.unique([str(label) for label in labels], return_inverse=True)
        _, first, inner = np.unique(units * rows + own, return_index=True, return_inverse=True)
        counts = _drawn(generator, counts, units[first])
        units = inner
    return counts[:, units]


def _drawn(generator: np.random.Generator, counts: Weights, parents: Weights) -> Weights:
    """Return how often each unit is drawn ``[R, m]``, given how often its parent was."""
    drawn = np.zeros((len(counts), len(parents)), dtype=np.int64)
    order = np.argsort(parents, kind="stable")
    owners, starts, sizes = np.unique(parents[order], return_index=True, return_counts=True)
    for size in np.unique(sizes):  # parents with as many units are drawn from at once
        same = sizes == size
        units = order[starts[same][:, None] + np.arange(size)]
        trials = counts[:, owners[same]] * size
        drawn[:, units] = generator.multinomial(trials, np.full(size, 1 / size))
    return drawn


def hierarchical_interval(
    values: ArrayLike,
    levels: Levels,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval | None:
    """Return the percentile bootstrap interval of a mean over nested units; NaN does not count.

    Args:
        values: A value a row, ``[n]``.
        levels: As of `hierarchical_weights`, one or more.
        level: Coverage.
        resamples: Number of resamples.
        seed: Seed of the draw.

    Returns:
        The interval, or None with fewer than two outermost units, or where no resample differs
        from another, as with equal values: that they are equal here does not say how far others
        would be.

    Raises:
        ValueError: If there is no level, or a level does not name the unit of every row.

    >>> hierarchical_interval([1.0, 1.0, 1.0], [["a", "b", "c"]]) is None
    True
    >>> people, images = ["a", "a", "b", "b"], [0, 1, 2, 3]
    >>> hierarchical_interval([1.0, 2.0, 3.0, 4.0], [people, images])
    (1.25, 3.75)
    """
    array = np.asarray(values, dtype=np.float64)
    if not levels or any(len(labels) != len(array) for labels in levels):
        raise ValueError(f"give the unit of each of the {len(array)} values at one level or more")
    known = np.flatnonzero(~np.isnan(array)).tolist()
    kept = [[labels[row] for row in known] for labels in levels]
    if len(set(kept[0])) < 2:
        return None
    weights = hierarchical_weights(kept, resamples, seed)
    return _percentiles(weights @ array[known] / weights.sum(axis=1), level)


def group_weights(groups: Sequence[Hashable], resamples: int = 1000, seed: int = 0) -> Weights:
    """Return how often each row is drawn in each bootstrap resample of whole groups.

    Rows of one image (or patient) are drawn together, since they are not independent.

    Args:
        groups: The group of every row, ``n`` of them.
        resamples: Number of resamples ``R``.
        seed: Seed of the draw.

    Returns:
        Counts ``[R, n]``.
    """
    return hierarchical_weights([groups], resamples, seed)


def bootstrap_interval(
    groups: Sequence[Hashable],
    statistic: Callable[[Weights], float],
    *,
    bounds: Interval | None = None,
    trials: int | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval | None:
    """Return the percentile bootstrap interval over groups of a weighted statistic.

    Args:
        groups: The group of every row.
        statistic: From how often each row counts ``[n]`` to the figure; NaN where it has none.
        bounds: The least and the most that the statistic can be. Where all resamples are alike,
            Wilson's interval stands in, stretched over the bounds.
        trials: Independent trials of Wilson's interval; the number of groups if None.
        level: Coverage.
        resamples: Number of resamples.
        seed: Seed of the draw.

    Returns:
        The interval, or None with fewer than two groups, or where all resamples are alike and
        there are no bounds.
    """
    if len(set(groups)) < 2:
        return None
    drawn = [statistic(weights) for weights in group_weights(groups, resamples, seed)]
    ends = _percentiles(np.asarray([value for value in drawn if not math.isnan(value)]), level)
    if ends or bounds is None:
        return ends
    value = statistic(np.ones(len(groups), dtype=np.int64))
    return _bounded(value, bounds, len(set(groups)) if trials is None else trials)


def mean_interval(
    values: ArrayLike, groups: Sequence[Hashable], *, resamples: int = 1000, seed: int = 0
) -> Interval | None:
    """Return the bootstrap interval over groups of a mean, see `hierarchical_interval`."""
    return hierarchical_interval(values, [groups], resamples=resamples, seed=seed)


def rate_interval(
    shares: ArrayLike, *levels: Sequence[Hashable], bounds: Interval = (0.0, 1.0)
) -> Interval | None:
    """Return the bootstrap interval of a mean of hits or shares, which is never of no width.

    Where no resample differs from another, as with all hits alike, Wilson's interval over as many
    trials as there are outermost units stands in.

    Args:
        shares: Within the bounds each; NaN does not count.
        levels: The unit of every share, from the outside in, as of `hierarchical_interval`.
        bounds: The least and the most that a share can be: -1 and 1 of a difference of shares.

    Returns:
        The interval, or None where no share is known.

    >>> [round(end, 3) for end in rate_interval([1, 1, 1, 1], "aabb")]
    [0.342, 1.0]
    """
    array = np.asarray(shares, dtype=np.float64)
    known = ~np.isnan(array)
    if not known.any():
        return None
    trials = len({unit for unit, keep in zip(levels[0], known, strict=True) if keep})
    found = hierarchical_interval(array, levels)
    return found or _bounded(float(array[known].mean()), bounds, trials)


def why_no_interval(interval: Interval | None, units: Sequence[Hashable]) -> str:
    """Return a sentence for the reader of a figure without interval; empty where it has one.

    >>> why_no_interval(None, ["a", "b"])
    'no interval: all values are equal'
    """
    if interval is not None:
        return ""
    few = len(set(units)) < 2
    return f"no interval: {'fewer than two units' if few else 'all values are equal'}"


def weighted_mean(values: NDArray[np.float64], weights: Weights) -> float:
    """Return the mean of values that count several times, NaN where nothing counts."""
    total = weights.sum()
    return float(values @ weights / total) if total else math.nan


def _bounded(value: float, bounds: Interval, trials: int) -> Interval:
    """Return Wilson's interval stretched over the bounds of a figure."""
    least, width = bounds[0], bounds[1] - bounds[0]
    share = float(min(1.0, max(0.0, (value - least) / width)))
    low, high = wilson_interval(share * trials, trials)
    return least + low * width, least + high * width


def _percentiles(drawn: NDArray[np.float64], level: float) -> Interval | None:
    """Return the ends between which most of the drawn figures lie; None where all are alike."""
    if not len(drawn) or np.ptp(drawn) <= 1e-9 * np.abs(drawn).max():
        return None
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return (float(low), float(high)) if low < high else None
