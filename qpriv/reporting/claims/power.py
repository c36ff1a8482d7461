"""How many seeds and images would decide a claim that these runs leave open."""

import math

from scipy.special import ndtri

from .verdict import LEVEL, Claim

POWER = 0.8
"""Probability with which the stated number decides, if the true figure is the observed one."""
MOST = 1_000_000


def would_decide(claim: Claim) -> str:
    """Say about how many seeds or images would decide an undecided claim; empty where unknown.

    It takes the observed figure for the true one and its variance to fall with the number of
    seeds, or of images within a single seed. The level is the strictest of the claim's family.
    """
    estimate = claim.estimate
    if claim.verdict != "undecided" or estimate is None or not claim.p or not claim.error:
        return ""
    gap = abs(estimate.value - claim.threshold)
    level = LEVEL / max(1, claim.tests)  # at worst: the smallest p-value of its family
    needed = float(ndtri(1 - level / 2) + ndtri(POWER)) * claim.error
    grown = (needed / gap) ** 2 if gap else math.inf
    seeds = len(estimate.seeds)
    units = seeds if estimate.rule == "over seeds" else estimate.n
    count = math.ceil(max(grown, 1.0) * units) if grown < MOST else MOST
    if count >= MOST:
        return "No feasible number of seeds or images would decide it: it lies at the threshold."
    if estimate.rule == "over seeds":
        return f"About {max(count, seeds + 1):,} seeds of {estimate.n:,} images would decide it."
    return f"About 1 seed of {_rounded(max(count, units + 1)):,} images would decide it."


def _rounded(count: int) -> int:
    """Round up to two digits that count.

    >>> _rounded(1234)
    1300
    """
    step: int = 10 ** max(0, len(str(count)) - 2)
    return math.ceil(count / step) * step
