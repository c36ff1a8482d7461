"""Claims that a policy hides more of the face than dropping as many patches blindly does."""

from collections.abc import Iterator
from dataclasses import replace

from qpriv.result import Result

from ..condition import Condition
from ..estimate import difference
from ..evidence import Evidence
from ..quantities import quantity
from .attackers import common_attacker, shortness, with_attacker
from .comparison import (
    FACE_PSNR,
    TREND_RATIOS,
    against_ladder,
    aware_halves,
    compared,
    ladder,
    line_weights,
)
from .verdict import Claim, judged, missing

SAME_RATIO = 0.02
"""Most by which the mean ratios of policies that are compared as of one ratio differ."""

_LINEAR = "Judged in squared error, which a blind mask mixes in proportion; decibels are curved."
_LINE_TOPIC = "Face PSNR and the linear trend"
RANDOM_TOPIC = "Face PSNR and random pruning"


def squared_error(result: Result) -> Result:
    """Return a PSNR (data range 1) as the squared error it stands for.

    A mean of decibels over images is that of the geometric mean of their errors.

    >>> squared_error(Result(name="psnr", value=20.0, n=1, unit="dB", ci=(10.0, 30.0))).value
    0.01
    """
    if result.value is None:
        return result
    ends = result.ci and (10 ** (-result.ci[1] / 10), 10 ** (-result.ci[0] / 10))
    return replace(result, value=10 ** (-result.value / 10), unit="", ci=ends)


def below_trend(evidence: Evidence) -> Iterator[Claim]:
    """Judge that the face is repainted worse than the line through off and the fixed ratios."""
    name, setting = common_attacker(evidence, quantity(FACE_PSNR))
    tested = _tested(evidence)
    for each in tested:
        rungs = ladder(evidence, each)
        whole = {ratio: rungs[ratio] for ratio in TREND_RATIOS if ratio in rungs}
        # fewer rungs are no trend: a study that is under way may have but one
        complete = len(whole) == len(TREND_RATIOS)
        statement = f"{each.label}: face PSNR is lower than the linear trend of its ranking."
        yield judged(
            _LINE_TOPIC,
            with_attacker(evidence, name, statement),
            against_ladder(
                evidence, name, each, whole, line_weights, measure=squared_error, **setting
            )
            if complete
            else None,
            "Squared error of the face minus the least-squares line at the policy's mean ratio",
            above=0.0,
            needed="face PSNR at off, 0.3, 0.5, 0.7 and 0.9 of the same ranking and seed",
            remark=f"{_LINEAR} {shortness(evidence.figure(name, each, **setting))}".strip()
            if complete
            else "",
        )
    if not tested:
        yield missing(
            _LINE_TOPIC,
            "Ranking by sensitivity lowers face PSNR below the linear trend.",
            "fixed(0.5,fused) or dtp(fused)",
        )


def below_random(evidence: Evidence) -> Iterator[Claim]:
    """Judge that the face is repainted worse than where as many patches are dropped at random.

    Only where random pruning of the same mean ratio was run; seeds are paired.
    """
    name, setting = common_attacker(evidence, quantity(FACE_PSNR))
    for each in _tested(evidence):
        random = _random_of_the_same_ratio(evidence, each)
        if random is None:
            continue
        statement = f"{each.label}: face PSNR is lower than under {random.label}."
        yield judged(
            RANDOM_TOPIC,
            with_attacker(evidence, name, statement),
            difference(
                evidence.series(name, each, **setting), evidence.series(name, random, **setting)
            ),
            "Face PSNR minus that of random pruning at the same ratio",
            below=0.0,
            unit="dB",
            needed="face PSNR of both policies in the same seed",
            remark=shortness(evidence.figure(name, each, **setting)),
        )


def _tested(evidence: Evidence) -> list[Condition]:
    aware = [c for c in compared(evidence, "dtp") if c.rank_by in ("fused", "sensitivity")]
    return [*aware_halves(evidence), *aware]


def _random_of_the_same_ratio(evidence: Evidence, condition: Condition) -> Condition | None:
    """Return the random policy that drops as many tokens, or None."""
    asked = _mean_ratio(evidence, condition)
    found = [c for c in evidence.conditions if c.family == "random" and _alike(c, condition)]
    gaps = {c: abs(_mean_ratio(evidence, c) - asked) for c in found}
    near = min(gaps, key=lambda c: gaps[c], default=None)
    return near if near is not None and gaps[near] <= SAME_RATIO else None


def _mean_ratio(evidence: Evidence, condition: Condition) -> float:
    ratios = list(evidence.mean_ratio(condition).values())
    return sum(ratios) / len(ratios) if ratios else float("inf")


def _alike(one: Condition, other: Condition) -> bool:
    """Return whether two conditions differ in their policy alone."""
    return (one.paradigm, one.defence, one.channel) == (
        other.paradigm,
        other.defence,
        other.channel,
    )
