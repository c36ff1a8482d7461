"""`MembershipProbe`: membership inference through queries, at epoch ends."""

import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from callbacks.probes.isolation import item_seed
from callbacks.probes.probe import Probe, Visit
from qpriv.attacks.membership.blind import FOLDS, blind_scores, count_groups
from qpriv.attacks.membership.lira import lira_attack
from qpriv.attacks.membership.rmia import rmia_attack
from qpriv.attacks.membership.scoring import (
    ShadowSignals,
    calibrated_attack,
    draw_shadow_set,
    loss_attack,
    shadow_attack,
)
from qpriv.attacks.membership.shadows import Shadow, train_shadow
from qpriv.attacks.query import QueryAccess, QueryPolicy
from qpriv.attacks.threat import ThreatModel
from qpriv.attacks.victim import AttackData, Victim, describe
from qpriv.curve import CURVES_FILE, Curve, append_curves
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.io import write_atomic
from qpriv.metrics.membership import attack_report, rates_at
from qpriv.result import Result, stamp

ATTACKS = {
    "": shadow_attack,
    "loss_": loss_attack,
    "calibrated_": calibrated_attack,
    "lira_": lira_attack,
    "rmia_": rmia_attack,
}
"""Attacks by the prefix of their metric names; the shadow attack is the headline."""

ALARMS = tuple(np.geomspace(1e-3, 1, 31).round(6).tolist())
"""False positive rates at which ROC curves are saved, the same in every run."""

PLACES = 9
"""Decimal places to which passes through a training set are rounded."""

STRONG_SHADOWS = 4
"""Results of an attack with fewer shadow models are marked as under-trained ("short")."""


@dataclass(frozen=True)
class Candidates:
    """The samples to classify as members or not, and the attacker's population samples.

    Args:
        members: Samples of the victim's training set.
        nonmembers: Samples that the victim never trained on.
        population: Samples of the same task, for calibration.
    """

    members: list[VQASample]
    nonmembers: list[VQASample]
    population: list[VQASample]

    @property
    def asked(self) -> list[VQASample]:
        """Return all samples to query, in the order of `ShadowSignals`."""
        return [*self.members, *self.nonmembers, *self.population]

    @property
    def is_member(self) -> NDArray[np.bool_]:
        """Return the true membership of members and non-members, ``[c]``."""
        return np.arange(len(self.members) + len(self.nonmembers)) < len(self.members)

    @property
    def origin(self) -> str:
        """Return the origin of the members as ``dataset/split``."""
        return f"{self.members[0].dataset}/{self.members[0].split}"

    @property
    def groups(self) -> list[str]:
        """Return the image (group) of each member and non-member."""
        return [sample.group_id for sample in (*self.members, *self.nonmembers)]


@dataclass(eq=False, repr=False, kw_only=True)
class MembershipProbe(Probe):
    """Infers membership with shadow models, two thresholds, LiRA and RMIA.

    Shadow models share the victim's recipe, policy and training-set size. Each is trained once
    for all query policies, and answers the same questions as the victim after the same number of
    passes. If the training ends earlier than planned (by time or by a callback), the probe trains
    the shadow models again, for as many passes as the victim.

    Metrics are ``attack/membership/<name>`` with the names of `attack_report`. The shadow attack
    has no prefix; the others have ``loss_``, ``calibrated_``, ``lira_`` and ``rmia_``.
    ``blind_auc`` is a baseline that never queries the model. If its interval lies above 0.5, the
    split itself reveals membership, and the note of every result says so.

    Args:
        max_samples: Largest number of members, and of non-members, to query; None for all. TPR at
            1 % FPR needs 1000.
        shadows: Number of shadow models.
        query_policy: Tokens that a query keeps: the victim's own mask (``same``), all (``off``),
            or a new random mask of the same size (``resampled``); or several of these.
        question_types: Query only samples of these question types; None for all.
        max_seconds: Time budget in seconds; when it is over, only the first two shadow models are
            still trained.
        log_private: Has no effect: the probe writes no private data.

    Raises:
        ConfigError: If there are fewer than two shadows or no query policy.
    """

    name: ClassVar[str] = "membership"
    max_samples: int | None = 1000
    shadows: int = 4
    query_policy: QueryPolicy | tuple[QueryPolicy, ...] = "same"
    question_types: tuple[str, ...] | None = None
    max_seconds: float = 3600.0

    def __post_init__(self) -> None:
        """Check the settings before anything is attacked."""
        super().__post_init__()
        self.at_least(shadows=2)
        if not self.query_policy:
            raise ConfigError("query_policy is empty", remedy="choose same, off or resampled")

    @property
    def query_policies(self) -> tuple[QueryPolicy, ...]:
        """Return the query policies as a tuple."""
        given = self.query_policy
        return (given,) if isinstance(given, str) else tuple(given)

    def check(self, victim: Victim, data: AttackData) -> None:
        """Raise a `ConfigError` for too few members or non-members, or samples for shadows."""
        candidates = self._candidates(data)
        if not candidates.members or not candidates.nonmembers:
            raise ConfigError(
                f"no members or no non-members of types {self.question_types}",
                remedy="check question_types and the data module",
            )
        fewest = min(count_groups(own) for own in (candidates.members, candidates.nonmembers))
        if fewest < FOLDS:
            raise ConfigError(
                f"{fewest} groups of members or non-members are too few for the blind baseline",
                where="max_samples",
                remedy=f"give {FOLDS} images (or patients) or more of both",
            )
        draw_shadow_set(data.population(), data.members(), seed=0)

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return two stages: one work item per shadow model, then the attacks."""
        return [[f"shadow={number}" for number in range(self.shadows)], ["attack"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Train one shadow model, or run all attacks."""
        if item != "attack":
            self._train_shadow(int(item.removeprefix("shadow=")), visit)
            return []
        candidates = self._candidates(visit.data)
        blind, shadows = self._blind(candidates), self._shadows(visit)
        return [
            self._named(figure, query, candidates, len(shadows), blind.note)
            for query in self.query_policies
            for figure in [blind, *self._attacked(visit, candidates, shadows, query)]
        ]

    def _attacked(
        self, visit: Visit, candidates: Candidates, shadows: Sequence[Shadow], query: QueryPolicy
    ) -> Iterator[Result]:
        signals = self._signals(visit, candidates, shadows, query)
        for prefix, attack in ATTACKS.items():
            found = attack(signals)
            self._keep_curve(f"{prefix}roc", found.scores, candidates, query, visit)
            figures = attack_report(
                found.scores, candidates.is_member, candidates.groups, threshold=found.threshold
            )
            yield from (replace(figure, name=prefix + figure.name) for figure in figures)

    def _keep_curve(
        self,
        name: str,
        scores: NDArray[np.float64],
        candidates: Candidates,
        query: QueryPolicy,
        visit: Visit,
    ) -> None:
        rates = rates_at(scores, candidates.is_member, ALARMS)
        curve = Curve(
            name=f"attack/membership/{name}",
            x=ALARMS,
            y=rates,
            n=len(set(candidates.groups)),
            dataset=candidates.origin,
            setting={**self.setting, "query_policy": query},
            attack={"query_policy": query, "nonmembers": len(candidates.nonmembers)},
            measured_by=type(self).__name__,
        )
        curves = stamp([curve], epoch=visit.epoch, **describe(visit.module))
        append_curves(visit.run_folder / CURVES_FILE, curves)

    def _candidates(self, data: AttackData) -> Candidates:
        chosen = [self._of_types(rows) for rows in (data.members(), data.nonmembers())]
        members, nonmembers = (rows[: self.max_samples] for rows in chosen)
        enough = None if self.max_samples is None else 2 * self.max_samples
        return Candidates(members, nonmembers, self._of_types(data.population())[:enough])

    def _of_types(self, samples: Sequence[VQASample]) -> list[VQASample]:
        wanted = self.question_types
        return [s for s in samples if wanted is None or s.meta.get("question_type") in wanted]

    def _train_shadow(self, number: int, visit: Visit) -> None:
        path = self._shadow_path(number, visit)
        if _asked(path, visit) or (number >= 2 and time.monotonic() > visit.deadline):
            return
        population = visit.data.population()
        seed = item_seed(visit.victim.seed, self.seed, "shadow", number)
        shadow = train_shadow(
            visit.victim,
            population,
            draw_shadow_set(population, visit.data.members(), seed),
            self._candidates(visit.data).asked,
            self.query_policies,
            self._due(visit, begun=path.exists()),
            seed,
        )
        write_atomic(path, shadow.to_bytes())

    def _shadow_path(self, number: int, visit: Visit) -> Path:
        """Return the file of a shadow model's replies; it depends on the recipe and the data."""
        victim, data = visit.victim, visit.data
        keys = [sample.key for sample in (*data.members(), *self._candidates(data).asked)]
        shared = (victim.recipe, victim.policy.label, victim.model.backbone, victim.seed, keys)
        digest = hashlib.sha256(repr((shared, self.query_policies)).encode()).hexdigest()[:10]
        return visit.folder / f"shadows-{digest}" / f"shadow={number}.npz"

    def _due(self, visit: Visit, *, begun: bool) -> list[float]:
        """Return the numbers of passes after which a shadow model is queried.

        These are the passes after which the victim will be measured. Only the current one is
        returned if no plan holds: the training is over, it has no planned end, or it has left its
        plan (a shadow model exists, but was not queried after this number of passes).
        """
        planned = visit.victim.recipe.epochs
        if begun or not visit.goes_on or not math.isfinite(planned):
            return [_passes(visit)]
        every = self.every_n_epochs * visit.passes / (visit.epoch + 1)
        due = {round(n * every, PLACES) for n in range(1, math.ceil(planned / every))}
        return sorted(due | {round(planned, PLACES), _passes(visit)})

    def _shadows(self, visit: Visit) -> list[Shadow]:
        paths = [self._shadow_path(number, visit) for number in range(self.shadows)]
        return [Shadow.from_bytes(path.read_bytes()) for path in paths if _asked(path, visit)]

    def _signals(
        self, visit: Visit, candidates: Candidates, shadows: Sequence[Shadow], query: QueryPolicy
    ) -> ShadowSignals:
        victim = visit.victim
        access = QueryAccess.of(victim, query, seed=visit.seed)
        asked = [*candidates.members, *candidates.nonmembers]
        return ShadowSignals(
            access.score(asked),
            tuple(shadow.replies[query, _passes(visit)] for shadow in shadows),
            np.stack([shadow.inside for shadow in shadows]),
        )

    def _blind(self, candidates: Candidates) -> Result:
        scores = blind_scores(candidates.members, candidates.nonmembers, seed=self.seed)
        report = attack_report(scores, candidates.is_member, candidates.groups)
        auc = next(figure for figure in report if figure.name == "auc")
        given_away = auc.ci is not None and auc.ci[0] > 0.5
        note = "members and non-members differ without asking the model" if given_away else ""
        return replace(auc, name="blind_auc", note=note)

    def _named(
        self, figure: Result, query: QueryPolicy, candidates: Candidates, shadows: int, flag: str
    ) -> Result:
        threat = ThreatModel(
            attacker="outsider", auxiliary="samples of the same task", access="queries"
        )
        short = shadows < STRONG_SHADOWS
        notes = [
            figure.note,
            flag if figure.note != flag else "",
            "short attacker" if short else "",
        ]
        return replace(
            figure,
            name=f"attack/membership/{figure.name}",
            dataset=candidates.origin,
            setting={"query_policy": query},
            attack={
                **threat.settings(),
                "query_policy": query,
                "shadows": shadows,
                "members": len(candidates.members),
                "nonmembers": len(candidates.nonmembers),
                "short": short,
            },
            note="; ".join(note for note in notes if note),
        )


def _passes(visit: Visit) -> float:
    """Return the victim's passes, rounded; shadow models are compared after as many."""
    return round(visit.passes, PLACES)


def _asked(path: Path, visit: Visit) -> bool:
    """Return whether a shadow model exists that was queried after the victim's passes."""
    return path.exists() and Shadow.from_bytes(path.read_bytes()).was_asked(_passes(visit))
