"""Membership inference by loss, calibrated loss, and shadow models.

Attacks are functions of signals collected beforehand (`ShadowSignals`): the models are queried
once, and every attack reads the same replies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from qpriv.datasets.sample import VQASample
from qpriv.declaration import Attack, Claimed, Row, aside, prefixed
from qpriv.metrics.membership import AUC, QUANTITIES, best_threshold
from qpriv.quantity import Quantity

from ..query import Replies

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

METHODS = {
    "": "shadow models",
    "loss_": "loss threshold",
    "calibrated_": "calibrated loss",
    "lira_": "LiRA",
    "rmia_": "RMIA",
}
"""What the names of an attack's figures begin with, and its name; the first is the headline."""

SHADOW_AUC = replace(
    AUC,
    title="AUC, shadow models",
    baseline="blind_auc",
    question="membership",
    by=METHODS[""],
)
BLIND_AUC = Quantity(
    name="blind_auc",
    title="Baseline: blind AUC",
    label="blind baseline",
    meaning="What is told of members by the data alone, without asking the model.",
    chance=0.5,
)
MEMBERSHIP = Attack(
    name="membership",
    title="Membership inference",
    quantities=(
        SHADOW_AUC,
        BLIND_AUC,
        *(
            replace(
                SHADOW_AUC,
                name=f"{prefix}auc",
                title=f"AUC, {title}",
                label="",
                headline=False,
                by=title,
            )
            for prefix, title in METHODS.items()
            if prefix
        ),
        *(own for own in QUANTITIES if own != AUC),
        *(
            own
            for prefix, title in METHODS.items()
            if prefix
            for own in aside(prefixed(QUANTITIES, prefix, title))
            if own.name != f"{prefix}auc"
        ),
    ),
    rows=(
        Row(
            what="membership, `MembershipProbe`",
            who="outsider who asks; no",
            holds="samples of the task, the recipe",
            knows="query policy `same`, `off`, `resampled`",
            measures="AUC, balanced accuracy at a threshold fixed on shadows and at the best "
            "one, advantage, TPR at 1 % and 0.1 % FPR",
            beside="blind baseline that never asks; 0.5",
            source="Shokri 2017, Yeom 2018, Watson 2022, LiRA 2022, RMIA 2024",
        ),
    ),
    claims=(
        Claimed(
            topic="Membership",
            statement="pruning lowers the AUC.",
            quantity=AUC.name,
            tested="AUC minus the AUC without pruning",
            under="pruned",
            against="unpruned",
            below=0.0,
            without="attack/membership/auc",
        ),
    ),
)
ATTACKS = (MEMBERSHIP,)


@dataclass(frozen=True)
class ShadowSignals:
    """Replies of the victim and of shadow models about the same samples.

    Columns are samples: first the ``c`` candidates to classify, then the attacker's population.

    Args:
        victim: The victim's replies about the candidates, ``[c]``.
        shadows: Each shadow's replies about all ``n`` samples.
        inside: Whether each shadow was trained on each sample, ``[S, n]`` bool.
    """

    victim: Replies
    shadows: tuple[Replies, ...]
    inside: Bools

    @property
    def num_candidates(self) -> int:
        """Return the number of candidates ``c``."""
        return len(self.victim.log_prob)

    def outside_mean(self, without: int | None = None) -> Floats:
        """Return the mean log-probability of each sample over the shadows that never saw it.

        Args:
            without: A shadow to leave out, because it acts as the victim.

        Returns:
            Means ``[n]``; NaN for samples that every shadow saw.
        """
        loss = np.stack([replies.mean_log_prob for replies in self.shadows])
        counted = ~self.inside
        if without is not None:
            counted = counted.copy()
            counted[without] = False
        total = np.where(counted, loss, 0).sum(axis=0)
        with np.errstate(invalid="ignore"):
            return np.asarray(total / counted.sum(axis=0), dtype=np.float64)


@dataclass(frozen=True)
class MembershipScores:
    """An attack's scores of the candidates.

    Args:
        scores: Higher means member, ``[c]``.
        threshold: Smallest score of a predicted member, set on shadow models.
    """

    scores: Floats
    threshold: float


def loss_attack(signals: ShadowSignals) -> MembershipScores:
    """Predict members by low loss (Yeom et al. 2018), with the best threshold on shadows."""
    own, inside = _population(signals, lambda number: signals.shadows[number].mean_log_prob)
    return MembershipScores(signals.victim.mean_log_prob, best_threshold(own, inside))


def calibrated_attack(signals: ShadowSignals) -> MembershipScores:
    """Predict members by difficulty calibration (Watson et al. 2022, section 3).

    The score is the log-probability minus its mean over the shadows that never saw the sample. To
    set the threshold, each shadow in turn acts as the victim, calibrated by the others.
    """
    own, inside = _population(
        signals,
        lambda number: signals.shadows[number].mean_log_prob - signals.outside_mean(number),
    )
    known = ~np.isnan(own)
    scores = signals.victim.mean_log_prob - signals.outside_mean()[: signals.num_candidates]
    return MembershipScores(scores, best_threshold(own[known], inside[known]))


def shadow_attack(signals: ShadowSignals) -> MembershipScores:
    """Predict members by a classifier trained on shadow models (Shokri et al. 2017).

    The classifier is a logistic regression on log-probability of the gold answer, confidence,
    entropy and correctness, trained on the shadows' own members and non-members.
    """
    start = signals.num_candidates
    features = np.concatenate([replies[start:].features() for replies in signals.shadows])
    inside = signals.inside[:, start:].reshape(-1)
    model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", C=1.0))
    model.fit(features, inside)
    own = np.asarray(model.decision_function(features))
    scores = np.asarray(model.decision_function(signals.victim.features()))
    return MembershipScores(scores, best_threshold(own, inside))


def _population(signals: ShadowSignals, score: Callable[[int], Floats]) -> tuple[Floats, Bools]:
    """Return every shadow's population scores in one row, and which samples it trained on."""
    start = signals.num_candidates
    scores = [score(number)[start:] for number in range(len(signals.shadows))]
    return np.concatenate(scores), signals.inside[:, start:].reshape(-1)


def draw_shadow_set(
    population: Sequence[VQASample], members: Sequence[VQASample], seed: int
) -> list[int]:
    """Draw the training set of a shadow model from the population.

    It is as large as the victim's, holds whole groups if possible, and keeps the population's
    share of every kind (the question type of a group's first sample).

    Args:
        population: The attacker's samples.
        members: The victim's training set; only its size is used.
        seed: Seed of the draw.

    Returns:
        Sorted row numbers, as many as there are members.

    Raises:
        ValueError: If less than twice as many samples are there: nothing would be left outside.
    """
    if len(population) < 2 * len(members):
        raise ValueError(
            f"population of {len(population)} samples, shadows of {len(members)} need twice as many"
        )
    groups: dict[str, list[int]] = {}
    for row, sample in enumerate(population):
        groups.setdefault(sample.group_id, []).append(row)
    kinds: dict[str, list[str]] = {}
    for group, rows in groups.items():
        kind = str(population[rows[0]].meta.get("question_type", ""))
        kinds.setdefault(kind, []).append(group)
    rng = np.random.default_rng(seed)
    # a group's turn is its place in its kind: any stretch of turns holds every kind in proportion
    turns = [
        ((place + rng.random()) / len(names), names[number])
        for _, names in sorted(kinds.items())
        for place, number in enumerate(rng.permutation(len(names)))
    ]
    rows = [row for _, group in sorted(turns) for row in groups[group]]
    return sorted(rows[: len(members)])
