"""Extractable, generalised, memorised: sets, their sizes with intervals, and the scores M and S.

Pinto et al. 2024 (arXiv 2407.08707), sections 4 and 5; the scores are those of Feldman and Zhang
2020 (arXiv 2008.03703) and Zhang et al. 2021 (arXiv 2112.12938).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from qpriv.errors import ConfigError
from qpriv.metrics.intervals import Interval, bootstrap_interval, wilson_interval

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Size:
    """Size of a set of canaries, or by how much it changed.

    Args:
        count: Number of canaries in it.
        interval: 95 % interval by bootstrap over documents; None for a single document. Where all
            resamples are alike, Wilson's interval over documents stands in.
    """

    count: int
    interval: Interval | None


def memorised(extractable: Flags, *generalised: Flags) -> Flags:
    """Return M = E - G, with G the union over the baselines.

    Args:
        extractable: Canaries extractable from the model that was trained on them ``[n]``.
        generalised: The same of each baseline that was not.

    >>> memorised(np.array([True, True]), np.array([True, False])).tolist()
    [False, True]
    """
    known: Flags = np.any(generalised, axis=0)
    return extractable & ~known


def size(flags: Flags, documents: Sequence[Hashable], seed: int = 0) -> Size:
    """Return the size of a set and how far it would vary with other documents.

    >>> size(np.array([True, True, False]), ["a", "a", "b"]).count
    2
    """
    values = flags.astype(np.float64)
    interval = bootstrap_interval(
        documents, lambda weights: float(weights @ values), bounds=(0.0, len(values)), seed=seed
    )
    return Size(int(flags.sum()), interval)


def size_change(after: Flags, before: Flags, documents: Sequence[Hashable], seed: int = 0) -> Size:
    """Return by how much a set has grown, canary by canary: both were asked the same.

    >>> size_change(np.array([True, False]), np.array([True, True]), ["a", "b"]).count
    -1
    """
    moved = after.astype(np.float64) - before.astype(np.float64)
    interval = bootstrap_interval(documents, lambda weights: float(weights @ moved), seed=seed)
    if interval is None and (independent := len(set(documents))) > 1:
        n = len(moved)
        fewest, most = wilson_interval(independent * float((moved > 0).mean()), independent)
        least_lost, most_lost = wilson_interval(
            independent * float((moved < 0).mean()), independent
        )
        interval = n * (fewest - most_lost), n * (most - least_lost)
    return Size(int(moved.sum()), interval)


def sizes_by(
    flags: Flags, labels: Sequence[Hashable], documents: Sequence[Hashable], seed: int = 0
) -> Mapping[Hashable, Size]:
    """Return the size of a set's parts by label, such as kind or repetition."""
    return {
        label: size(flags & np.array([other == label for other in labels]), documents, seed)
        for label in dict.fromkeys(labels)
    }


def balanced_splits(groups: Sequence[Hashable], splits: int, seed: int) -> Flags:
    """Return which canary each split trains on ``[K, n]``: every one in exactly half of them.

    The sampler of Carlini et al. 2022 (arXiv 2112.03570). Canaries of one group move together:
    one that is left out must not be taught by another question with the same answer.

    Args:
        groups: The group of every canary.
        splits: Number K of splits, even.
        seed: Seed of the draw.

    Raises:
        ConfigError: If K is odd: then no canary could be in half of the splits.
    """
    if splits < 2 or splits % 2:
        raise ConfigError(f"{splits} splits", where="splits", remedy="choose an even number")
    names = list(dict.fromkeys(groups))
    draws = np.random.default_rng(seed).random((splits, len(names)))
    kept = draws.argsort(axis=0).argsort(axis=0) < splits // 2
    column = {name: number for number, name in enumerate(names)}
    return kept[:, [column[group] for group in groups]]


@dataclass(frozen=True)
class Scores:
    """Memorisation and simplicity of every canary, estimated from K splits.

    On pages without the answer they are M_E and S_E, on whole pages M and S.

    Args:
        inside: Successes among the splits that trained on the canary ``[n]``.
        outside: Successes among the others ``[n]``.
        each: Number of splits of either kind, K / 2.
    """

    inside: NDArray[np.int64]
    outside: NDArray[np.int64]
    each: int

    @property
    def memorisation(self) -> NDArray[np.float64]:
        """Return M = P[success | in] - P[success | out]."""
        return (self.inside - self.outside) / self.each

    @property
    def simplicity(self) -> NDArray[np.float64]:
        """Return S = P[success | in] + P[success | out]."""
        return (self.inside + self.outside) / self.each

    def interval(self, number: int) -> Interval:
        """Return the 95 % interval of a canary's memorisation."""
        return newcombe(int(self.inside[number]), int(self.outside[number]), self.each)

    def significant(self, false_discoveries: float = 0.05) -> Flags:
        """Return the canaries whose memorisation is above zero.

        One-sided Fisher tests, Benjamini-Hochberg over all canaries.

        Args:
            false_discoveries: Largest expected share of false ones among those returned.
        """
        pairs = list(zip(self.inside.tolist(), self.outside.tolist(), strict=True))
        tested = {pair: self._p_value(*pair) for pair in set(pairs)}
        return benjamini_hochberg([tested[pair] for pair in pairs], false_discoveries)

    def _p_value(self, inside: int, outside: int) -> float:
        table = [[inside, self.each - inside], [outside, self.each - outside]]
        return float(fisher_exact(table, alternative="greater").pvalue)

    def histogram(self, chosen: Flags | None = None, bins: int = 10) -> NDArray[np.int64]:
        """Return counts over memorisation and simplicity ``[bins, bins]``.

        Args:
            chosen: The canaries counted; all where None.
            bins: Bins of memorisation in [-1, 1], and of simplicity in [0, 2].
        """
        rows = np.ones(len(self.inside), dtype=bool) if chosen is None else chosen
        counts, _, _ = np.histogram2d(
            self.memorisation[rows], self.simplicity[rows], bins, [(-1, 1), (0, 2)]
        )
        return counts.astype(np.int64)


def scores(success: Flags, kept: Flags) -> Scores:
    """Return the scores from the outcomes of K splits.

    Args:
        success: Whether each split's model says the answer ``[K, n]``.
        kept: Whether the split trained on the canary ``[K, n]``.

    Raises:
        ConfigError: If a canary is not in exactly half of the splits.
    """
    splits = len(kept)
    if (kept.sum(axis=0) * 2 != splits).any():
        raise ConfigError("a canary is not in half of the splits", where=f"{splits} splits")
    inside = (success & kept).sum(axis=0)
    outside = (success & ~kept).sum(axis=0)
    return Scores(inside, outside, splits // 2)


def newcombe(first: int, second: int, n: int) -> Interval:
    """Return the 95 % interval of a difference of two shares of n (Newcombe 1998, method 10).

    >>> [round(end, 2) for end in newcombe(25, 0, 25)]
    [0.81, 1.0]
    """
    p, q = first / n, second / n
    low_p, high_p = wilson_interval(first, n)
    low_q, high_q = wilson_interval(second, n)
    down = ((p - low_p) ** 2 + (high_q - q) ** 2) ** 0.5
    up = ((high_p - p) ** 2 + (q - low_q) ** 2) ** 0.5
    return max(-1.0, p - q - down), min(1.0, p - q + up)


def benjamini_hochberg(p_values: Sequence[float], rate: float) -> Flags:
    """Return which tests are discoveries at a false discovery rate.

    >>> benjamini_hochberg([0.01, 0.04, 0.5], 0.05).tolist()
    [True, False, False]
    """
    values = np.asarray(p_values)
    order = values.argsort(kind="stable")
    below = values[order] <= rate * np.arange(1, len(values) + 1) / len(values)
    found = np.zeros(len(values), dtype=bool)
    if below.any():
        found[order[: int(np.flatnonzero(below)[-1]) + 1]] = True
    return found
