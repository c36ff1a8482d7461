"""`Claim`: something shown, not assumed, that ends as reproduced, not reproduced or undecided."""

from dataclasses import dataclass
from typing import Literal

from scipy.special import ndtr, ndtri, stdtr, stdtrit

from ..estimate import Estimate
from ..numbers import with_interval

Verdict = Literal["reproduced", "not reproduced", "undecided"]

LEVEL = 0.05

RULE = (
    "A claim is reproduced when the whole 95 % interval lies on the claimed side of its threshold, "
    "not reproduced when the whole interval lies on the other side, and undecided otherwise: when "
    "the interval holds the threshold, when there is no interval, or when a figure is missing. "
    "Claims are put to the test in families, and the more there are the more each has to show: a "
    "verdict other than undecided needs a p-value of at most .05 after Holm's adjustment. The "
    "verdict by the interval alone stands beside it."
)


@dataclass(frozen=True)
class Claim:
    """One claim with its verdict and what the verdict rests on.

    Args:
        topic: The group it belongs to, such as ``Membership``.
        statement: The claim, in one sentence.
        verdict: What the figures say.
        evidence: The figures, with intervals and the threshold.
        estimate: The tested quantity, or None where a figure is missing.
        threshold: What the tested quantity is held against.
        unadjusted: What the interval alone says.
        p: Two-sided p-value of the threshold; None where there is no interval.
        error: Standard error on the side of the threshold, or None.
        family: The family it belongs to.
        tests: Claims of the family that have a p-value.
        adjusted: Holm's p-value within the family; None without p-value, or before adjustment.
    """

    topic: str
    statement: str
    verdict: Verdict
    evidence: str
    estimate: Estimate | None = None
    threshold: float = 0.0
    unadjusted: Verdict = "undecided"
    p: float | None = None
    error: float | None = None
    family: str = ""
    tests: int = 0
    adjusted: float | None = None


def p_value(estimate: Estimate, threshold: float) -> tuple[float, float] | None:
    """Return the two-sided p-value of a threshold and the standard error, or None.

    It inverts the 95 % interval: Student's t over seeds, the normal distribution within one,
    with the error of the side on which the threshold lies.

    >>> one = Estimate(1.96, 0.0, 4.0, n=9, seeds=(0,), rule="within one seed")
    >>> [round(each, 3) for each in p_value(one, 0.0) or ()]
    [0.05, 1.0]
    """
    if estimate.low is None or estimate.high is None:
        return None
    value = estimate.value
    half = value - estimate.low if threshold <= value else estimate.high - value
    degrees = len(estimate.seeds) - 1 if estimate.rule == "over seeds" else 0
    error = half / float(stdtrit(degrees, 1 - LEVEL / 2) if degrees else ndtri(1 - LEVEL / 2))
    if not error:
        return (1.0 if value == threshold else 0.0), 0.0
    score = -abs(value - threshold) / error
    return 2 * float(stdtr(degrees, score) if degrees else ndtr(score)), error


def decide(
    estimate: Estimate | None, *, above: float | None = None, below: float | None = None
) -> Verdict:
    """Return the verdict on "the quantity lies above (below) this threshold".

    Args:
        estimate: The quantity, or None where it was not measured.
        above: Threshold of a claim that says "more than".
        below: Threshold of a claim that says "less than"; exactly one of the two is given.

    Raises:
        ValueError: If not exactly one threshold is given.

    >>> narrow = Estimate(0.03, 0.01, 0.04, n=250, seeds=(0,), rule="within one seed")
    >>> decide(narrow, below=0.05), decide(narrow, above=0.05), decide(narrow, above=0.02)
    ('reproduced', 'not reproduced', 'undecided')
    """
    if (above is None) == (below is None):
        raise ValueError("give exactly one of above and below")
    if estimate is None or estimate.low is None or estimate.high is None:
        return "undecided"
    threshold = above if above is not None else below
    assert threshold is not None  # for the type checker: one of the two was given
    if estimate.low > threshold:
        return "reproduced" if below is None else "not reproduced"
    if estimate.high < threshold:
        return "reproduced" if above is None else "not reproduced"
    return "undecided"


def missing(topic: str, statement: str, *needed: str) -> Claim:
    """Return the claim of something these runs did not measure."""
    return Claim(topic, statement, "undecided", f"Not measured here: needs {' and '.join(needed)}.")


def judged(
    topic: str,
    statement: str,
    estimate: Estimate | None,
    quantity: str,
    *,
    above: float | None = None,
    below: float | None = None,
    unit: str = "",
    needed: str = "figures of the runs compared",
    remark: str = "",
) -> Claim:
    """Return a claim decided by one estimate.

    Args:
        topic: The group it belongs to.
        statement: The claim, in one sentence.
        estimate: The tested quantity, or None where a figure is missing.
        quantity: What the estimate is, in words.
        above: Threshold of a claim that says "more than".
        below: Threshold of a claim that says "less than".
        unit: Unit of the estimate.
        needed: What must be run where the estimate is None.
        remark: A sentence more for the reader.
    """
    if estimate is None and remark:  # something of it was measured, or was tried
        told = f"Not decided here: needs {needed}. {remark}"
        return Claim(topic, statement, "undecided", told)
    if estimate is None:
        return missing(topic, statement, needed)
    threshold = f"above {above:g}" if above is not None else f"below {below:g}"
    evidence = f"{quantity}: {with_interval(estimate, unit)}; claimed {threshold}."
    if estimate.interval is None:
        evidence += " One seed and no interval within it: this decides nothing."
    verdict = decide(estimate, above=above, below=below)
    against = above if above is not None else below or 0.0
    p, error = p_value(estimate, against) or (None, None)
    told = f"{evidence} {remark}".strip()
    return Claim(
        topic, statement, verdict, told, estimate, against, unadjusted=verdict, p=p, error=error
    )
