"""`Evidence`: all figures of some runs, to be asked by name, condition and attack setting."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from qpriv.result import Result, Scalar

from .condition import Condition
from .estimate import Estimate, Seed, mean_of
from .recovered import recovered_shares
from .run_folder import Run

# settings that make two attacks two attacks; the others (budgets, counters) may grow with epochs
_IDENTITY = ("attack", "cut", "positions", "query_policy")

Setting = tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True)
class Measurement:
    """A result with the condition it was measured under."""

    condition: Condition
    result: Result

    @property
    def setting(self) -> Setting:
        """Return the settings that tell this attack from another one."""
        return tuple((key, self.result.attack[key]) for key in _IDENTITY if key in self.attack)

    @property
    def attack(self) -> dict[str, Scalar]:
        """Return the attack's settings."""
        return self.result.attack

    @property
    def source(self) -> tuple[str, str]:
        """Return the data set and the split."""
        name, _, split = self.result.dataset.partition("/")
        return name, split


@dataclass(frozen=True, eq=False)
class Figure:
    """The last measurement of one quantity under one condition, in each of its seeds.

    Args:
        name: Name of the result.
        condition: What it was measured under.
        setting: What tells this attack from another.
        by_seed: The result of each seed, failed ones included.
    """

    name: str
    condition: Condition
    setting: Setting
    by_seed: dict[Seed, Result]

    @property
    def measured(self) -> dict[Seed, Result]:
        """Return the seeds that have a value."""
        return {seed: result for seed, result in self.by_seed.items() if result.value is not None}

    @property
    def failed(self) -> list[Result]:
        """Return the results that should have a value and do not."""
        return [result for result in self.by_seed.values() if result.status in _TROUBLE]

    @property
    def estimate(self) -> Estimate | None:
        """Return the mean over seeds with its interval, or None where nothing was measured."""
        return mean_of(self.measured)

    @property
    def example(self) -> Result:
        """Return one of the results, for its unit and settings."""
        return next(iter(self.by_seed.values()))

    @property
    def short(self) -> bool:
        """Return whether the attacker had less than the time it needs."""
        return any(bool(result.attack.get("short")) for result in self.by_seed.values())


_TROUBLE = ("failed", "skipped")


class Evidence:
    """The figures of some runs on one data set.

    The figure of a seed is the one measured last: the highest epoch, and a figure of the test
    split before one of any other split, of a named data set before one of none.

    Args:
        measurements: In the order they were made.
    """

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        self.measurements = tuple(measurements)

    @classmethod
    def of(cls, runs: Iterable[Run]) -> "Evidence":
        """Gather the results of runs."""
        return cls(
            [
                Measurement(Condition.of(result, run.tags, run.stage), result)
                for run in runs
                for result in (*run.results, *run.training_losses, *recovered_shares(run.results))
            ]
        )

    @cached_property
    def datasets(self) -> list[str]:
        """Return the data sets, the one with the most figures first."""
        counts = Counter(each.source[0] for each in self.measurements)
        named = [name for name in counts if name]
        return sorted(named or counts, key=lambda name: (-counts[name], name))

    def within(self, dataset: str) -> "Evidence":
        """Return what was measured on one data set, or on none that is named."""
        return Evidence([each for each in self.measurements if each.source[0] in (dataset, "")])

    @cached_property
    def conditions(self) -> list[Condition]:
        """Return the conditions in a reader's order."""
        return sorted({m.condition for m in self.measurements}, key=lambda c: c.order)

    @cached_property
    def figures(self) -> list[Figure]:
        """Return the final figure of every quantity, condition and attack setting."""
        groups: dict[tuple[str, Condition, Setting], dict[Seed, Measurement]] = defaultdict(dict)
        for each in self.measurements:
            of_seed = groups[each.result.name, each.condition, each.setting]
            held = of_seed.get(each.result.seed)
            if held is None or _recency(each) >= _recency(held):
                of_seed[each.result.seed] = each
        figures = [
            Figure(*key, {seed: m.result for seed, m in of_seed.items()})
            for key, of_seed in groups.items()
        ]
        return sorted(figures, key=lambda f: (f.name, f.condition.order, str(f.setting)))

    @cached_property
    def _index(self) -> dict[str, list[Figure]]:
        index: dict[str, list[Figure]] = defaultdict(list)
        for figure in self.figures:
            index[figure.name].append(figure)
        return index

    def named(self, name: str) -> list[Figure]:
        """Return the figures of one quantity, in the order of the conditions."""
        return self._index.get(name, [])

    def figure(self, name: str, condition: Condition, **setting: Scalar) -> Figure | None:
        """Return one figure; with several attack settings, the first that agrees with ``setting``."""
        for figure in self.named(name):
            if figure.condition == condition and _agrees(figure, setting):
                return figure
        return None

    def series(self, name: str, condition: Condition, **setting: Scalar) -> dict[Seed, Result]:
        """Return the measured result of each seed; empty where there is none."""
        figure = self.figure(name, condition, **setting)
        return figure.measured if figure else {}

    def estimate(self, name: str, condition: Condition, **setting: Scalar) -> Estimate | None:
        """Return a figure's mean and interval, or None."""
        return mean_of(self.series(name, condition, **setting))

    def history(self, figure: Figure) -> dict[int, Estimate]:
        """Return a figure after each epoch, over the seeds that reached it.

        A test after training is no point of the curve, unless nothing else was measured.
        """
        same = [m for m in self.measurements if _belongs(m, figure) and m.result.epoch is not None]
        curve = [m for m in same if m.source[1] != "test"] or same
        epochs: dict[int, dict[Seed, Result]] = defaultdict(dict)
        for each in curve:
            epochs[each.result.epoch or 0][each.result.seed] = each.result
        estimates = {epoch: mean_of(epochs[epoch]) for epoch in sorted(epochs)}
        return {epoch: estimate for epoch, estimate in estimates.items() if estimate is not None}

    def mean_ratio(self, condition: Condition) -> dict[Seed, float]:
        """Return the share of tokens dropped in each seed, counted against ``off``.

        Where no run without pruning is at hand the ratio of a fixed policy is its own.
        """
        kept = self.series("kept_tokens", condition)
        whole = {s: r for c in self.conditions if c.family == "off"
                 for s, r in self.series("kept_tokens", c).items()}  # fmt: skip
        ratios = {
            seed: 1.0 - (result.value or 0.0) / (whole[seed].value or 1.0)
            for seed, result in kept.items()
            if seed in whole
        }
        if not ratios and condition.ratio is not None:
            seeds = {m.result.seed for m in self.measurements if m.condition == condition}
            ratios = dict.fromkeys(seeds, condition.ratio)
        return ratios


def _recency(measurement: Measurement) -> tuple[bool, float, bool]:
    result = measurement.result
    name, split = measurement.source
    return split == "test", math.inf if result.epoch is None else result.epoch, bool(name)


def _agrees(figure: Figure, setting: Mapping[str, Scalar]) -> bool:
    """Return whether a figure was measured so; without pruning every query policy is the same."""
    own = dict(figure.setting)
    if figure.condition.family == "off" and "query_policy" in own:
        own["query_policy"] = setting.get("query_policy", own["query_policy"])
    return setting.items() <= own.items()


def _belongs(measurement: Measurement, figure: Figure) -> bool:
    result = measurement.result
    key = result.name, measurement.condition, measurement.setting
    return key == (figure.name, figure.condition, figure.setting) and result.value is not None
