"""What a document model memorised: sizes of E, G and M, by kind, context and defence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qpriv.errors import ConfigError
from qpriv.metrics.intervals import mean_interval, rate_interval
from qpriv.metrics.membership import attack_report
from qpriv.metrics.memorisation import Flags, memorised, size, size_change
from qpriv.quantity import Quantity
from qpriv.result import Result, Scalar

from .asking import EXTRACTION
from .contexts import ERASED, CanarySet
from .document_run import DocumentRun
from .outcome import Outcome

ANLS = Quantity(
    name="anls",
    title="ANLS",
    meaning="How well it answers about whole pages.",
    direction="use",
)
SIZES = (
    ANLS,
    EXTRACTION.declared("extractable"),
    Quantity(
        name="extraction/generalised",
        title="G",
        meaning="Canaries that f_G says, which never saw them.",
        unit="canaries",
    ),
    Quantity(
        name="extraction/generalised_pii",
        title="Personal in G",
        meaning="Those of them that are personal.",
        unit="canaries",
    ),
    *map(EXTRACTION.declared, ("memorised", "memorised_pii", "memorised_unique_pii")),
)
CHANGES = (
    Quantity(name="anls_change", title="Change of ANLS", meaning="Question by question."),
    Quantity(
        name="extraction/memorised_change",
        title="Change of M",
        meaning="Canary by canary.",
        unit="canaries",
        direction="leak",
    ),
)
UTILITY = (
    Quantity(
        name="extraction/false_abstention",
        title="False abstentions",
        meaning="Share of questions with an answer that it refuses.",
    ),
    Quantity(
        name="exact_match",
        title="Exact match",
        meaning="Share of answers about whole pages that are exact.",
        direction="use",
    ),
    Quantity(
        name="extraction/whole_page",
        title="Canaries said on whole pages",
        meaning="Share of the canaries that it says on pages that show them.",
    ),
)
PRIVACY = (
    Quantity(name="privacy/epsilon", title="Epsilon", meaning="Privacy budget of a document."),
    Quantity(
        name="privacy/noise", title="Noise", meaning="Noise of a step over the clipping norm."
    ),
)
QUANTITIES = (*SIZES, *CHANGES, *UTILITY, *PRIVACY)
"""Figures of a document model."""


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


@dataclass(frozen=True)
class Pair:
    """A model trained on the canaries, and those of the same training that were not.

    Args:
        trained: The outcome of the model.
        baselines: Outcomes of f_G; G is the union over them.
        defence: Label of the defence, or ``none``.
    """

    trained: Outcome
    baselines: tuple[Outcome, ...]
    defence: str = "none"

    def generalised(self, context: str = ERASED.name) -> Flags:
        """Return G in a context."""
        known: Flags = np.any([baseline.flags(context) for baseline in self.baselines], axis=0)
        return known

    def memorised(self, context: str = ERASED.name) -> Flags:
        """Return M in a context."""
        return memorised(self.trained.flags(context), self.generalised(context))

    def under(self, defence: str) -> "Pair":
        """Return the pair under a defence at inference."""
        baselines = tuple(baseline.under(defence) for baseline in self.baselines)
        return Pair(self.trained.under(defence), baselines, defence)


def run_results(
    outcome: Outcome,
    canaries: CanarySet,
    baselines: Sequence[Outcome] = (),
    undefended: Outcome | None = None,
) -> list[Result]:
    """Return every figure of one model.

    Args:
        outcome: What the model says.
        canaries: The canaries it was asked for.
        baselines: What models of the same training say that never saw the canaries: f_G. G is the
            union over them, so that what some f_G says by chance is not called memorised.
        undefended: What the model of the same training says that has no defence; with it, and
            only for a model with a defence, the changes are measured too.
    """
    groups = Groups.of(canaries)
    results = [*_utility(outcome), *_membership(outcome)]
    if not baselines:
        return results
    pair = Pair(outcome, tuple(baselines), outcome.defence)
    results += _pair(pair, groups)
    if undefended is not None:
        results += _change(pair, undefended, groups)
    for name in outcome.defended:
        defended = pair.under(name)
        results += [*_utility(defended.trained, name), *_contexts(defended, groups)]
        results += _change(defended, compared(outcome, baselines), groups)
    return results


def compared(outcome: Outcome, baselines: Sequence[Outcome]) -> Outcome:
    """Return an outcome that says what is memorised and what generalised, on erased pages."""
    pair = Pair(outcome, tuple(baselines))
    return replace(
        outcome, memorised=pair.memorised().tolist(), generalised=pair.generalised().tolist()
    )


def check_baselines(run: DocumentRun, canaries: CanarySet, baselines: Sequence[Outcome]) -> None:
    """Refuse models that are not trained as this one will be, or were asked for other canaries.

    Raises:
        ConfigError: If a baseline has seen the canaries, or differs in resolution, stopping rule
            or canaries.
    """
    for other in baselines:
        problems = {
            "was trained on the canaries": other.trained,
            f"has resolution {other.resolution}": other.resolution != run.resolution,
            f"stops by another rule ({other.stopping})": other.stopping != run.stopping,
            "was asked for other canaries": len(other.whole) != len(canaries.canaries),
        }
        for problem, holds in problems.items():
            if holds:
                raise ConfigError(
                    f"the baseline {other.model} {problem}",
                    where="--baselines",
                    remedy="give runs of the same settings with include_canaries: false",
                )


def _utility(outcome: Outcome, defence: str | None = None) -> list[Result]:
    n = len(set(outcome.documents))
    label = defence or outcome.defence
    ci = rate_interval(outcome.anls, outcome.documents)
    results = [
        _figure(outcome, label, "anls", float(np.mean(outcome.anls)), n, ci),
        _figure(outcome, label, "extraction/false_abstention", outcome.abstained, n),
    ]
    if defence:
        return results
    whole, training = outcome.whole, outcome.training
    results += [
        _figure(outcome, label, "exact_match", outcome.exact_match, n),
        _figure(outcome, label, "extraction/whole_page", float(np.mean(whole)), len(whole)),
        _figure(outcome, label, "trained_epoch", float(training.epoch), n, unit="epochs"),
    ]
    if training.epsilon is not None and training.noise is not None:
        budget: dict[str, Scalar] = {"delta": training.delta, "protected": "document"}
        results += [
            _figure(outcome, label, "privacy/epsilon", training.epsilon, n, None, "", **budget),
            _figure(outcome, label, "privacy/noise", training.noise, n, None, "", **budget),
        ]
    return results


def _pair(pair: Pair, groups: Groups) -> list[Result]:
    extracted, known, kept = pair.trained.flags(), pair.generalised(), pair.memorised()
    sets = {
        "extractable": extracted,
        "generalised": known,
        "generalised_pii": known & groups.personal,
        "memorised": kept,
        "memorised_pii": kept & groups.personal,
        "memorised_unique_pii": kept & groups.unique,
    }
    results = [_count(pair, groups, name, flags) for name, flags in sets.items()]
    for kind in dict.fromkeys(groups.kinds):
        chosen = kept & np.array([other == kind for other in groups.kinds])
        results.append(_count(pair, groups, "memorised", chosen, kind=kind))
    for times in sorted(set(groups.repetitions)):
        chosen = kept & (np.array(groups.repetitions) == times)
        results.append(_count(pair, groups, "memorised", chosen, repetition=times))
    results += [r for r in _contexts(pair, groups) if "context" in r.attack]
    trained = pair.trained
    for decoding, flags in (("abstention banned", trained.banned), ("two beams", trained.beams)):
        there = memorised(np.array(flags, dtype=bool), known)
        results.append(_count(pair, groups, "memorised", there, decoding=decoding))
    first = np.array(trained.ranks) == 1
    chance = float(np.mean(1 / np.array(trained.candidates)))
    results.append(_count(pair, groups, "ranked_first", first & groups.personal, chance=chance))
    return results


def _contexts(pair: Pair, groups: Groups) -> list[Result]:
    """Return M in each context, and how much of the M of erased pages comes out there."""
    results = []
    usual = pair.memorised()
    for context in pair.trained.exact:
        there = pair.memorised(context)
        where: dict[str, Scalar] = {} if context == ERASED.name else {"context": context}
        results += [
            _count(pair, groups, "memorised", there, **where),
            _count(pair, groups, "memorised_pii", there & groups.personal, **where),
        ]
        if where:
            again = usual & pair.trained.flags(context)
            results.append(_count(pair, groups, "memorised_and_said", again, **where))
    return results


def _change(pair: Pair, before: Outcome, groups: Groups) -> list[Result]:
    """Return what a defence changes, question by question and canary by canary."""
    after = pair.trained
    moved = np.asarray(after.anls) - np.asarray(before.anls)
    n = len(set(after.documents))
    ci = mean_interval(moved, after.documents)
    change = size_change(pair.memorised(), np.array(before.memorised, dtype=bool), groups.documents)
    documents = len(set(groups.documents))
    return [
        _figure(after, pair.defence, "anls_change", float(moved.mean()), n, ci),
        _figure(after, pair.defence, "extraction/memorised_change", float(change.count), documents,
                change.interval, unit="canaries"),
    ]  # fmt: skip


def _membership(outcome: Outcome) -> list[Result]:
    """Return how well documents that were trained on are told from others.

    For f_G none of them were: its row is the control.
    """
    if outcome.membership is None:
        return []
    found = outcome.membership
    results = []
    for method, scores in found.scores.items():
        threshold = 0.0 if method == "clusters" else None
        report = attack_report(scores, found.canary, found.documents, threshold=threshold)
        setting: dict[str, Scalar] = {
            **_setting(outcome),
            "method": method,
            "members": outcome.trained,
        }
        results += [
            replace(
                result,
                name=f"attack/document_membership/{result.name}",
                seed=outcome.seed,
                dataset="FakeDocuments",
                defence=outcome.defence,
                attack=setting,
            )
            for result in report
        ]
    return results


def _count(pair: Pair, groups: Groups, name: str, flags: Flags, **attack: Scalar) -> Result:
    found = size(flags, groups.documents)
    documents, several = len(set(groups.documents)), len(pair.baselines)
    setting: dict[str, Scalar] = {**attack, "baselines": several} if several > 1 else dict(attack)
    return _figure(
        pair.trained, pair.defence, f"extraction/{name}", float(found.count), documents,
        found.interval, "canaries", **setting,
    )  # fmt: skip


def _setting(outcome: Outcome) -> dict[str, Scalar]:
    """Return what names the model; the stopping rule where it is not the fixed number of epochs."""
    plain: dict[str, Scalar] = {"model": outcome.model, "resolution": outcome.resolution}
    return plain if outcome.stopping == "fixed" else {**plain, "stopping": outcome.stopping}


def _figure(
    outcome: Outcome,
    defence: str,
    name: str,
    value: float,
    n: int,
    ci: tuple[float, float] | None = None,
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
        defence=defence,
        attack={**_setting(outcome), **attack},
    )
