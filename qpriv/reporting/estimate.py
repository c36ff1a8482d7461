"""Intervals of what a report says: over seeds where there are several, else within the one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtrit

from qpriv.result import Result

Rule = Literal["over seeds", "within one seed", "none"]
Seed = int | None
Term = tuple[float, Result]


@dataclass(frozen=True)
class Estimate:
    """A figure, or a linear combination of figures, with its 95 % interval.

    Args:
        value: The point estimate: the mean over seeds.
        low: Lower end of the interval; None where no interval can be given.
        high: Upper end of the interval, or None.
        n: Number of independent units in each seed's figures (the smallest of them).
        seeds: The seeds it rests on.
        rule: How the interval came about.
        clustered_by: What the figures' own intervals draw as a whole; empty where they differ or
            do not say.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    seeds: tuple[Seed, ...]
    rule: Rule
    clustered_by: str = ""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return both ends, or None."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def combine(terms: Mapping[Seed, Sequence[Term]], offset: float = 0.0) -> Estimate | None:
    """Return ``offset + sum of coefficient x figure`` with its interval.

    Over several seeds the combination is taken in each seed, and its mean gets a Student t
    interval: differences are paired, since a seed's runs share data and split. It covers what
    the seeds vary: the training, and the data where each seed draws its own.

    Within one seed the figures' own intervals are joined as if independent by the MOVER rule
    (Zou and Donner, Statistics in Medicine 27, 2008), which keeps their asymmetry. Figures on
    the same test images are positively dependent, so that a difference gets too wide an interval
    rather than too narrow a one.

    Args:
        terms: For each seed the coefficients and their figures; figures must have a value.
        offset: A constant to add.

    >>> def figure(value: float, seed: int) -> Result:
    ...     return Result(name="accuracy", value=value, n=300, ci=(value - 0.03, value + 0.04))
    >>> one = combine({0: [(1.0, figure(0.80, 0)), (-1.0, figure(0.70, 0))]})
    >>> f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}] {one.rule}"
    '0.10 [0.05, 0.15] within one seed'
    >>> three = combine({seed: [(1.0, figure(0.80 + seed / 100, seed))] for seed in range(3)})
    >>> f"{three.value:.2f} [{three.low:.3f}, {three.high:.3f}] {three.rule}"
    '0.81 [0.785, 0.835] over seeds'
    """
    if not terms:
        return None
    values = [offset + sum(factor * _value(result) for factor, result in t) for t in terms.values()]
    mean = sum(values) / len(values)
    single = next(iter(terms.values()))
    ends = _student(values, mean) if len(values) > 1 else _mover(mean, single)
    rule: Rule = "none" if ends is None else "over seeds" if len(values) > 1 else "within one seed"
    low, high = ends or (None, None)
    used = [result for each in terms.values() for _, result in each]
    n = min((result.n for result in used), default=0)
    named = {result.clustered_by for result in used}
    return Estimate(mean, low, high, n, tuple(terms), rule, named.pop() if len(named) == 1 else "")


def mean_of(series: Mapping[Seed, Result]) -> Estimate | None:
    """Return the mean of one figure over its seeds."""
    return combine({seed: [(1.0, result)] for seed, result in series.items()})


def difference(left: Mapping[Seed, Result], right: Mapping[Seed, Result]) -> Estimate | None:
    """Return ``left - right`` over the seeds both have."""
    return combine({s: [(1.0, left[s]), (-1.0, right[s])] for s in left if s in right})


def _value(result: Result) -> float:
    if result.value is None:
        raise ValueError(f"{result.name} has no value: {result.status}")
    return result.value


def _student(values: Sequence[float], mean: float) -> tuple[float, float]:
    degrees = len(values) - 1
    variance = sum((value - mean) ** 2 for value in values) / degrees
    half = float(stdtrit(degrees, 0.975)) * math.sqrt(variance / len(values))
    return mean - half, mean + half


def _mover(mean: float, terms: Sequence[Term]) -> tuple[float, float] | None:
    below = above = 0.0
    for factor, result in terms:
        if result.ci is None or not all(map(math.isfinite, result.ci)):
            return None
        ends = [factor * (end - _value(result)) for end in result.ci]
        below += min(ends) ** 2
        above += max(ends) ** 2
    return mean - math.sqrt(below), mean + math.sqrt(above)
