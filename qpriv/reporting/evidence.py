"""`Evidence`: look up the figures of some runs by name, condition and attack setting."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from qpriv.key import AttackSetting, apart
from qpriv.lines import distinct
from qpriv.result import Result, Scalar

from .condition import HYPOTHETICAL, Condition, conditions_of
from .estimate import Estimate, Seed, mean_of
from .recovered import recovered_shares
from .run_folder import Run

Setting = tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True)
class Measurement:
    """A result with the condition it was measured under."""

    condition: Condition
    result: Result

    @cached_property
    def setting(self) -> Setting:
        """Return the settings that distinguish this attack from others."""
        return self.result.key.setting.parts

    @property
    def source(self) -> tuple[str, str]:
        """Return the data set and the split."""
        name, _, split = self.result.dataset.partition("/")
        return name, split

    @cached_property
    def identity(self) -> "Identity":
        """Return what it shares with the same figure of other seeds and epochs."""
        result = self.result
        return result.name, self.condition, self.setting, result.channel, result.dataset

    @property
    def recency(self) -> tuple[bool, float, bool]:
        """Return a sort key; tests, late epochs and named data sets sort last."""
        name, split = self.source
        epoch = self.result.epoch
        return split == "test", math.inf if epoch is None else epoch, bool(name)


Identity = tuple[str, Condition, Setting, str, str]
"""Name, condition, setting, channel, and data set with its split."""


@dataclass(frozen=True, eq=False)
class Figure:
    """The last measurement of one quantity under one condition, in each of its seeds.

    Args:
        name: Name of the result.
        condition: What it was measured under.
        setting: What tells this attack from another.
        channel: What the attack reads, which may be another channel than the run's.
        dataset: Data set and split.
        measurements: The last one of each seed, failed ones included.
    """

    name: str
    condition: Condition
    setting: Setting
    channel: str
    dataset: str
    measurements: dict[Seed, Measurement]

    @property
    def identity(self) -> Identity:
        """Return the fields that identify this figure."""
        return self.name, self.condition, self.setting, self.channel, self.dataset

    @property
    def by_seed(self) -> dict[Seed, Result]:
        """Return the result of each seed, failed ones included."""
        return {seed: each.result for seed, each in self.measurements.items()}

    @property
    def recency(self) -> tuple[bool, float, bool]:
        """Return the key that sorts the figures of one quantity: the one to show is the last."""
        return max(each.recency for each in self.measurements.values())

    @property
    def measured(self) -> dict[Seed, Result]:
        """Return the seeds that have a finite value."""
        return {seed: result for seed, result in self.by_seed.items() if _is_number(result.value)}

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
    def hypothetical(self) -> bool:
        """Return whether it was read at a cut that the run does not have."""
        return self.channel.startswith(HYPOTHETICAL)

    @property
    def short(self) -> bool:
        """Return whether the attacker had less than the time it needs."""
        return any(bool(result.attack.get("short")) for result in self.by_seed.values())


_TROUBLE = ("failed", "skipped")


class Evidence:
    """The figures of some runs on one data set.

    The figure of a seed is the one measured last. Splits are figures apart, of which the one of the
    test split is shown first, and a figure of a named data set before one of none.

    Args:
        measurements: In the order they were made.
    """

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        self.measurements = tuple(measurements)

    @classmethod
    def of(cls, runs: Iterable[Run]) -> "Evidence":
        """Gather the results of runs.

        Raises:
            DataError: If two runs of one stage and seed measured different values of one figure.
        """
        found: list[tuple[Result, str]] = []
        for run in runs:
            own = (*run.results, *run.training_losses, *recovered_shares(run.results))
            found += [
                (replace(each, stage=run.stage, tags=run.tags), str(run.folder)) for each in own
            ]
        distinct([result for result, _ in found], lambda number: found[number][1])
        return cls.gathered([result for result, _ in found])

    @classmethod
    def gathered(cls, results: Sequence[Result]) -> "Evidence":
        """Gather results, each under its condition."""
        return cls(
            [Measurement(*pair) for pair in zip(conditions_of(results), results, strict=True)]
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
        """Return the final figure of every quantity, condition, attack setting and split."""
        groups: dict[Identity, dict[Seed, Measurement]] = defaultdict(dict)
        places: dict[Identity, int] = {}
        for place, each in enumerate(self.measurements):
            of_seed, places[each.identity] = groups[each.identity], place
            held = of_seed.get(each.result.seed)
            if held is None or each.recency >= held.recency:
                of_seed[each.result.seed] = each
        figures = [Figure(*identity, of_seed) for identity, of_seed in groups.items()]
        return sorted(
            figures,
            key=lambda f: (f.name, f.condition.order, str(f.setting), places[f.identity]),
        )

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
        """Return one figure of those that agree with ``setting``: the one to show.

        That is the one measured last, see `Figure.recency`; of several settings the first.
        """
        found = [f for f in self.named(name) if f.condition == condition and _agrees(f, setting)]
        # what crosses is spoken of before what would cross at a cut that the run does not have
        found = sorted(found, key=lambda figure: figure.hypothetical)
        of_one = [
            figure
            for figure in found
            if (figure.setting, figure.channel) == (found[0].setting, found[0].channel)
        ]
        latest = max((figure.recency for figure in of_one), default=None)
        return next((figure for figure in reversed(of_one) if figure.recency == latest), None)

    def attacker(self, figure: Figure) -> str:
        """Describe how a figure's attacker differs from others of its name, ignoring the query policy."""
        settings = [AttackSetting(each.setting) for each in self.named(figure.name)]
        names = [name for name in apart(settings) if name != "query_policy"]
        return AttackSetting(figure.setting).phrase(names)

    def series(self, name: str, condition: Condition, **setting: Scalar) -> dict[Seed, Result]:
        """Return the measured result of each seed; empty if there is none."""
        figure = self.figure(name, condition, **setting)
        return figure.measured if figure else {}

    def estimate(self, name: str, condition: Condition, **setting: Scalar) -> Estimate | None:
        """Return a figure's mean and interval, or None."""
        return mean_of(self.series(name, condition, **setting))

    def history(self, figure: Figure) -> dict[int, Estimate]:
        """Return a figure after each epoch, over the seeds that reached it.

        A test after training is no point of the curve, unless nothing else was measured; of
        several splits it is the one with the most epochs.
        """
        same = [m for m in self.measurements if _belongs(m, figure) and m.result.epoch is not None]
        curve = [m for m in same if m.source[1] != "test"] or same
        splits: dict[str, dict[int, dict[Seed, Result]]] = defaultdict(lambda: defaultdict(dict))
        for each in curve:
            splits[each.result.dataset][each.result.epoch or 0][each.result.seed] = each.result
        latest = reversed(splits.values())  # of equals, the one measured last
        epochs = max(latest, key=len, default={})
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


def _agrees(figure: Figure, setting: Mapping[str, Scalar]) -> bool:
    """Return whether a figure was measured so; without pruning every query policy is the same."""
    own = dict(figure.setting)
    if figure.condition.family == "off" and "query_policy" in own:
        own["query_policy"] = setting.get("query_policy", own["query_policy"])
    return setting.items() <= own.items()


def _belongs(measurement: Measurement, figure: Figure) -> bool:
    same = measurement.identity[:-1] == figure.identity[:-1]
    return same and _is_number(measurement.result.value)


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
