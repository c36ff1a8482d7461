"""Figures of a document study: sizes of E, G and M with intervals, by kind, context and defence."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qpriv.attacks.extraction_contexts import ERASED, CanarySet
from qpriv.metrics.intervals import mean_interval
from qpriv.metrics.memorisation import Flags, memorised, size
from qpriv.reporting.document_study import Outcome
from qpriv.result import Result, Scalar

BLOCKED = "extraction blocking"


@dataclass(frozen=True)
class Groups:
    """Properties of the canaries, in their order.

    Args:
        documents: Document of each.
        personal: Whether it is personal.
        unique: Whether it is personal and occurs once in training.
        kinds: Kind of personal information, or ``none``.
        repetitions: How often it occurs in training.
    """

    documents: list[str]
    personal: Flags
    unique: Flags
    kinds: list[str]
    repetitions: list[int]

    @classmethod
    def of(cls, canaries: CanarySet) -> "Groups":
        """Return the properties of a set of canaries."""
        found = canaries.canaries
        personal = np.array([canary.pii is not None for canary in found])
        return cls(
            [canaries.sample(number).group_id for number in range(len(found))],
            personal,
            personal & np.array([canary.unique for canary in found]),
            [canary.pii or "none" for canary in found],
            [canary.train_count for canary in found],
        )


def study_results(outcomes: Sequence[Outcome], canaries: CanarySet) -> list[Result]:
    """Return every figure of a study.

    Args:
        outcomes: Outcomes of its runs.
        canaries: The canaries they were asked for.
    """
    groups = Groups.of(canaries)
    results = [figure for outcome in outcomes for figure in _utility(outcome)]
    for trained, baseline in _pairs(outcomes):
        results += _pair(trained, baseline, groups)
    return results


def _pairs(outcomes: Sequence[Outcome]) -> Iterator[tuple[Outcome, Outcome]]:
    """Yield each trained model with the f_G of its resolution and seed."""
    baselines = {(o.resolution, o.seed): o for o in outcomes if o.kind == "f_G"}
    for outcome in outcomes:
        if outcome.kind != "f_G" and (outcome.resolution, outcome.seed) in baselines:
            yield outcome, baselines[outcome.resolution, outcome.seed]


def _utility(outcome: Outcome) -> list[Result]:
    n = len(set(outcome.documents))
    figure = _maker(outcome)
    return [
        figure("anls", float(np.mean(outcome.anls)), n, mean_interval(outcome.anls, outcome.documents)),
        figure("exact_match", outcome.exact_match, n, None),
        figure("extraction/whole_page", float(np.mean(outcome.whole)), len(outcome.whole), None),
        figure("extraction/false_abstention", outcome.abstained, n, None),
    ]  # fmt: skip


def _pair(trained: Outcome, baseline: Outcome, groups: Groups) -> list[Result]:
    figure = _maker(trained)

    def count(name: str, flags: Flags, **attack: Scalar) -> Result:
        found = size(flags, groups.documents)
        documents = len(set(groups.documents))
        return figure(name, float(found.count), documents, found.interval, "canaries", **attack)

    extracted, known = trained.flags(), baseline.flags()
    kept = memorised(extracted, known)
    results = [
        count("extraction/extractable", extracted),
        count("extraction/generalised", known),
        count("extraction/generalised_pii", known & groups.personal),
        count("extraction/memorised", kept),
        count("extraction/memorised_pii", kept & groups.personal),
        count("extraction/memorised_unique_pii", kept & groups.unique),
    ]
    for kind in dict.fromkeys(groups.kinds):
        chosen = kept & np.array([other == kind for other in groups.kinds])
        results.append(count("extraction/memorised", chosen, kind=kind))
    for times in sorted(set(groups.repetitions)):
        chosen = kept & (np.array(groups.repetitions) == times)
        results.append(count("extraction/memorised", chosen, repetition=times))
    for context in trained.exact:
        if context != ERASED.name:
            there = memorised(trained.flags(context), baseline.flags(context))
            results += [
                count("extraction/memorised", there, context=context),
                count("extraction/memorised_pii", there & groups.personal, context=context),
            ]
    for decoding, flags in (("abstention banned", trained.banned), ("two beams", trained.beams)):
        there = memorised(np.array(flags, dtype=bool), known)
        results.append(count("extraction/memorised", there, decoding=decoding))
    first = np.array(trained.ranks) == 1
    chance = float(np.mean(1 / np.array(trained.candidates)))
    results.append(count("extraction/ranked_first", first & groups.personal, chance=chance))
    return results


def _maker(outcome: Outcome) -> Callable[..., Result]:
    def figure(
        name: str,
        value: float,
        n: int,
        ci: tuple[float, float] | None,
        unit: str = "",
        **attack: Scalar,
    ) -> Result:
        return Result(
            name=name,
            value=value,
            n=n,
            unit=unit,
            ci=ci,
            seed=outcome.seed,
            dataset="FakeDocuments",
            defence=BLOCKED if outcome.kind == "f_EB" else "none",
            attack={"model": outcome.kind, "resolution": outcome.resolution, **attack},
        )

    return figure


def table(results: Sequence[Result]) -> str:
    """Return the main figures as a Markdown table, one row a trained model."""
    names = (
        "anls",
        "extraction/extractable",
        "extraction/generalised",
        "extraction/generalised_pii",
        "extraction/memorised",
        "extraction/memorised_pii",
        "extraction/memorised_unique_pii",
    )
    rows: dict[tuple[Scalar, ...], dict[str, Result]] = {}
    for result in results:
        plain = set(result.attack) == {"model", "resolution"}
        if plain and result.name in names:
            row = (result.attack["model"], result.attack["resolution"], result.seed)
            rows.setdefault(row, {})[result.name] = result
    head = ("model", "resolution", "seed", *(name.rsplit("/", 1)[-1] for name in names))
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for key, figures in rows.items():
        cells = [str(part) for part in key]
        cells += [_cell(figures[name]) if name in figures else "" for name in names]
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def _cell(result: Result) -> str:
    digits = 0 if result.unit else 3
    ends = "" if result.ci is None else " [{:.{d}f}, {:.{d}f}]".format(*result.ci, d=digits)
    return f"{result.value:.{digits}f}{ends}"
