"""How well scores tell members from non-members, at every operating point that matters."""

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qpriv.declaration import aside
from qpriv.quantity import Quantity
from qpriv.result import Result

from .intervals import Weights, bootstrap_interval, why_no_interval
from .means import IMAGE_GROUP

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

AUC = Quantity(
    name="auc",
    title="AUC",
    label="Membership AUC",
    meaning="Chance that a member is held for one sooner than a non-member; 0.5 is guessing.",
    direction="leak",
    chance=0.5,
    headline=True,
)
QUANTITIES = (
    AUC,
    Quantity(
        name="tpr_at_1_fpr",
        title="TPR at 1 % FPR",
        meaning="Members named at 1 % error.",
        direction="leak",
        chance=0.01,
    ),
    Quantity(
        name="balanced_accuracy",
        title="Balanced accuracy",
        meaning="Mean rate of being right on members and on others; threshold fixed on shadow "
        "models.",
        direction="leak",
        chance=0.5,
    ),
    *aside(
        [
            Quantity(
                name="tpr_at_0.1_fpr",
                title="TPR at 0.1 % FPR",
                meaning="Members named at 0.1 % error.",
                direction="leak",
                chance=0.001,
            ),
            Quantity(
                name="balanced_accuracy_best",
                title="Balanced accuracy, best threshold",
                meaning="At the threshold that is best here, which no attacker could know.",
                direction="leak",
                chance=0.5,
            ),
            Quantity(
                name="advantage",
                title="Advantage",
                meaning="True less false positive rate, threshold fixed on shadow models.",
                direction="leak",
                chance=0.0,
            ),
        ]
    ),
)
"""Figures of `attack_report`."""


def attack_report(
    scores: ArrayLike,
    is_member: ArrayLike,
    groups: Sequence[Hashable] | None = None,
    *,
    threshold: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> list[Result]:
    """Return every figure of a membership attack with its 95 % interval over groups.

    ``auc``; ``tpr_at_1_fpr`` and ``tpr_at_0.1_fpr`` (not applicable below ten false positives'
    worth of non-members, that is n < 10 / FPR); ``balanced_accuracy`` and ``advantage``
    (TPR - FPR) at a threshold fixed elsewhere; ``balanced_accuracy_best`` at the threshold that
    is best here, which no attacker could know.

    Args:
        scores: Higher means member, ``[n]``.
        is_member: The truth, ``[n]``.
        groups: Image or patient of each row; each row by itself if None.
        threshold: Scores from here on are called members; fixed on shadow models.
        resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.

    >>> [r.value for r in attack_report([0.9, 0.8, 0.2, 0.1], [1, 1, 0, 0]) if r.name == "auc"]
    [1.0]
    """
    values, member = np.asarray(scores, np.float64), np.asarray(is_member, np.bool_)
    owners = list(groups) if groups is not None else list(range(len(values)))
    n = len(set(owners))

    sides = [
        len({o for o, own in zip(owners, side, strict=True) if own}) for side in (member, ~member)
    ]
    fewer = min(sides)

    def figure(
        name: str, statistic: Callable[[Weights], float], *, least: float = 0.0, trials: int
    ) -> Result:
        ones = np.ones(len(values), dtype=np.int64)
        ci = bootstrap_interval(
            owners, statistic, bounds=(least, 1.0), trials=trials, resamples=resamples, seed=seed
        )
        return Result(
            name=name,
            value=statistic(ones),
            n=n,
            ci=ci,
            clustered_by=IMAGE_GROUP if ci and groups is not None else "",
            note=why_no_interval(ci, owners),
        )

    def rate(name: str, fpr: float) -> Result:
        outsiders, needed = int((~member).sum()), math.ceil(10 / fpr)
        if outsiders < needed:
            note = f"needs {needed} non-members, has {outsiders}"
            return Result(name=name, value=None, n=n, status="not applicable", note=note)
        return figure(name, lambda w: true_positive_rate(values, member, fpr, w), trials=sides[0])

    report = [
        figure("auc", lambda w: area_under_curve(values, member, w), trials=fewer),
        rate("tpr_at_1_fpr", 0.01),
        rate("tpr_at_0.1_fpr", 0.001),
        figure(
            "balanced_accuracy_best",
            lambda w: best_balanced_accuracy(values, member, w),
            trials=fewer,
        ),
    ]
    if threshold is not None:
        called = values >= threshold
        report += [
            figure(
                "balanced_accuracy", lambda w: balanced_accuracy(called, member, w), trials=fewer
            ),
            figure(
                "advantage",
                lambda w: 2 * balanced_accuracy(called, member, w) - 1,
                least=-1.0,
                trials=fewer,
            ),
        ]
    return report


def curve(scores: Floats, member: Bools, weights: Weights) -> tuple[Floats, Floats]:
    """Return false and true positive rates at every threshold, from (0, 0) to (1, 1).

    Rows with equal scores enter together: no threshold can part them.
    """
    order = np.argsort(-scores, kind="stable")
    ordered, inside, weight = scores[order], member[order], weights[order].astype(np.float64)
    ends = np.flatnonzero(np.append(np.diff(ordered) != 0, True))
    hits = np.cumsum(weight * inside)[ends]
    alarms = np.cumsum(weight * ~inside)[ends]
    if hits[-1] == 0 or alarms[-1] == 0:
        return np.asarray([math.nan]), np.asarray([math.nan])
    return np.append(0.0, alarms / alarms[-1]), np.append(0.0, hits / hits[-1])


def rates_at(scores: ArrayLike, is_member: ArrayLike, alarms: Sequence[float]) -> tuple[float, ...]:
    """Return the true positive rate that each false positive rate allows, without interpolation.

    Args:
        scores: Scores ``[n]``, higher means member.
        is_member: The truth ``[n]``.
        alarms: False positive rates, of which none is exceeded.

    >>> rates_at([3, 2, 1, 0], [True, True, False, False], [0.0, 0.5])
    (1.0, 1.0)
    """
    values, member = np.asarray(scores, np.float64), np.asarray(is_member, np.bool_)
    fpr, tpr = curve(values, member, np.ones(len(values), np.int64))
    return tuple(float(tpr[fpr <= alarm].max()) if len(fpr) > 1 else math.nan for alarm in alarms)


def area_under_curve(scores: Floats, member: Bools, weights: Weights) -> float:
    """Return the probability that a member scores above a non-member, ties count half."""
    fpr, tpr = curve(scores, member, weights)
    return float(np.trapezoid(tpr, fpr)) if len(fpr) > 1 else math.nan


def true_positive_rate(scores: Floats, member: Bools, fpr: float, weights: Weights) -> float:
    """Return the largest TPR whose FPR is at most ``fpr``, without interpolation."""
    alarms, hits = curve(scores, member, weights)
    return float(hits[alarms <= fpr].max()) if len(hits) > 1 else math.nan


def best_balanced_accuracy(scores: Floats, member: Bools, weights: Weights) -> float:
    """Return the balanced accuracy at the threshold that is best on these very rows."""
    fpr, tpr = curve(scores, member, weights)
    return float(((tpr + 1 - fpr) / 2).max())


def balanced_accuracy(called: Bools, member: Bools, weights: Weights) -> float:
    """Return the mean of the two rates of being right: on members, and on non-members."""
    inside, outside = weights[member].sum(), weights[~member].sum()
    if not inside or not outside:
        return math.nan
    hits, passes = weights[member & called].sum(), weights[~member & ~called].sum()
    return float((hits / inside + passes / outside) / 2)


def best_threshold(scores: ArrayLike, is_member: ArrayLike) -> float:
    """Return the threshold with the best balanced accuracy, to be fixed on shadow models.

    It lies midway between the two scores it parts.

    >>> best_threshold([0.9, 0.7, 0.3], [True, True, False])
    0.5
    """
    values, member = np.asarray(scores, np.float64), np.asarray(is_member, np.bool_)
    ordered = np.unique(values)
    cuts = np.concatenate([[-np.inf], (ordered[1:] + ordered[:-1]) / 2, [np.inf]])
    ones = np.ones(len(values), dtype=np.int64)
    accuracies = [balanced_accuracy(values >= cut, member, ones) for cut in cuts]
    return float(cuts[int(np.argmax(accuracies))])
