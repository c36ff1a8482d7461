"""Work items of a probe: shared over the ranks, isolated from the victim, and cached."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from callbacks.probes.cache import ProbeCache
from callbacks.probes.isolation import isolated, item_seed
from callbacks.probes.progress import Progress
from callbacks.probes.ranks import gather, meet
from callbacks.probes.visit import Visit
from qpriv.attacks.victim import describe
from qpriv.errors import DataError
from qpriv.key import Scalar
from qpriv.lines import distinct
from qpriv.paradigms.ranks import rank, world
from qpriv.result import Result, stamp


class Worker(Protocol):
    """The parts of a probe that its work items need; see `Probe` for their meaning."""

    seed: int
    max_seconds: float
    audit_isolation: bool

    @property
    def name(self) -> str:
        """Return the name of the attack."""
        ...

    @property
    def metric_prefix(self) -> str:
        """Return the prefix of the probe's metric names, after ``attack/``."""
        ...

    @property
    def setting(self) -> dict[str, Scalar]:
        """Return the settings that distinguish attacks of one name."""
        ...

    @property
    def reads_channel(self) -> bool:
        """Return whether the results depend on what crosses between the parties."""
        ...

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return stages of named work items."""
        ...

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Run one work item on the frozen victim."""
        ...


@dataclass(frozen=True)
class Outcome:
    """The outcome of one work item, as ranks exchange it.

    Args:
        item: Name of the item.
        results: Results of the item; empty if it failed or only prepared other items.
        error: Reason of the failure; empty if the item succeeded.
    """

    item: str
    results: tuple[Result, ...] = ()
    error: str = ""


def carry_out(probe: Worker, visit: Visit, cache: ProbeCache) -> list[Outcome]:
    """Run the items of all stages and return their outcomes; stop after a stage that failed.

    Every rank must call it. Each rank works on its share and gets the outcomes of all.

    Args:
        probe: The probe.
        visit: The state of the victim.
        cache: Stores finished items, so that a resumed run measures only what is missing.
    """
    outcomes: list[Outcome] = []
    seed_parts = (describe(visit.module)["seed"], probe.seed, probe.name, visit.epoch)
    with isolated(
        visit.module, seed=item_seed(*seed_parts), audit=probe.audit_isolation, name=probe.name
    ):
        stages = probe.plan(visit)
    meet()
    shares = [stage[rank() :: world()] for stage in stages]
    progress = Progress(probe.metric_prefix, [len(mine) for mine in shares], visit.deadline)
    visit = replace(visit, watch=progress.step)
    for mine in shares:
        outcomes += gather([_one(probe, item, visit, cache, progress) for item in mine])
        if any(outcome.error for outcome in outcomes):
            break
    progress.close()
    return _once_each(outcomes)


def figures_of(probe: Worker, outcomes: Sequence[Outcome], visit: Visit) -> list[Result]:
    """Return the results of all items, with failures, and add the probe's and victim's settings.

    Args:
        probe: The probe; each result gets its setting and class.
        outcomes: Outcomes of its items.
        visit: The state of the victim; each result gets its seed, policy and channel.
    """
    results = [result for outcome in outcomes for result in outcome.results]
    results += [_failure(probe, outcome) for outcome in outcomes if outcome.error]
    results = [
        replace(own, setting={**probe.setting, **own.setting}, measured_by=type(probe).__name__)
        for own in results
    ]
    if probe.reads_channel:
        read = visit.victim.channel.label
        results = [replace(own, channel=own.channel or read) for own in results]
    return stamp(results, epoch=visit.epoch, **describe(visit.module))


def _failure(probe: Worker, outcome: Outcome) -> Result:
    """Return a result with status ``failed`` for a failed item."""
    return Result(
        name=f"attack/{probe.metric_prefix}",
        value=None,
        n=0,
        status="failed",
        note=f"{outcome.item}: {outcome.error}",
        setting={"item": outcome.item},
    )


def _one(probe: Worker, item: str, visit: Visit, cache: ProbeCache, progress: Progress) -> Outcome:
    progress.begin(item)
    outcome = _attempted(probe, item, visit, cache)
    progress.end()
    return outcome


def _attempted(probe: Worker, item: str, visit: Visit, cache: ProbeCache) -> Outcome:
    known = cache.read(item)
    if known is not None:
        return Outcome(item, tuple(known))
    own = describe(visit.module)["seed"]
    seed = item_seed(own, probe.seed, probe.name, visit.epoch, item)
    try:
        with isolated(visit.module, seed=seed, audit=probe.audit_isolation, name=probe.name):
            results = probe.measure(item, replace(visit, seed=seed))
            results = [_in_time(result, visit, probe.max_seconds) for result in results]
    except Exception as error:  # no failure of an attack may end the training
        return Outcome(item, error=f"{type(error).__name__}: {error}")
    cache.write(item, results)
    return Outcome(item, tuple(results))


def _in_time(result: Result, visit: Visit, budget: float) -> Result:
    """Return a result; its note says if it took longer than the budget in seconds."""
    if time.monotonic() <= visit.deadline or result.value is None:
        return result
    over = f"over its budget of {budget:g} s"
    return replace(result, note=f"{result.note}; {over}" if result.note else over)


def _once_each(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes; turn one that gives a second value to a figure into a failure."""
    kept: list[Outcome] = []
    for outcome in outcomes:
        held = [(each.item, result) for each in (*kept, outcome) for result in each.results]
        try:
            # metric names do not contain the data set, so compare results without it
            plain = [replace(result, dataset="") for _, result in held]
            distinct(plain, lambda number: held[number][0])
        except DataError as error:
            outcome = Outcome(outcome.item, error=str(error))
        kept.append(outcome)
    return kept
