"""LiRA: the likelihood ratio of a sample's confidence under models with and without it.

Carlini et al., *Membership Inference Attacks From First Principles*, S&P 2022. A sample's
log-odds over shadow models is close to normal; the victim's is compared with the shadows that
were trained on the sample (IN) and those that were not (OUT), or offline with OUT alone.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from qpriv.metrics.membership import best_threshold

from .scoring import MembershipScores, ShadowSignals

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Mode = Literal["online", "offline"]


def log_odds(log_prob: Floats) -> Floats:
    """Return ``log p - log (1 - p)`` of an answer's probability, in double precision.

    For a class, this is the paper's logit-scaled confidence. For a generated answer, ``p`` is the
    probability of the whole gold answer with its end token.

    >>> float(log_odds(np.log(np.asarray([0.5])))[0])
    0.0
    """
    clipped = np.minimum(log_prob, -1e-15)
    return np.asarray(clipped - np.log(-np.expm1(clipped)), dtype=np.float64)


def lira_scores(
    victim: Floats,
    shadows: Floats,
    inside: Bools,
    *,
    mode: Mode = "offline",
    fixed_variance: bool = True,
) -> Floats:
    """Return the score of each sample; higher means member.

    Args:
        victim: Log-odds of the victim, ``[n]``.
        shadows: Log-odds of the shadows, ``[S, n]``.
        inside: Which samples each shadow was trained on, ``[S, n]``.
        mode: ``online`` is the log-likelihood ratio IN to OUT (equation 4); ``offline`` the log
            of the share of OUT models below the victim, the paper's one-sided test (equation 5).
            The published code scores offline by the two-sided density, which also calls samples
            members that the victim finds much too hard.
        fixed_variance: One variance over all samples, better below about 64 shadows; IN and OUT
            each have their own (the published code takes IN's for both).

    Returns:
        Scores ``[n]``; NaN where a sample has no OUT shadow (or, online, no IN shadow).
    """
    low, spread_low = _normal(shadows, ~inside, fixed_variance)
    if mode == "offline":
        return np.asarray(norm.logcdf(victim, low, spread_low))
    high, spread_high = _normal(shadows, inside, fixed_variance)
    return np.asarray(norm.logpdf(victim, high, spread_high) - norm.logpdf(victim, low, spread_low))


def _normal(shadows: Floats, counted: Bools, fixed_variance: bool) -> tuple[Floats, Floats]:
    """Return median and standard deviation of each sample over the counted shadows."""
    known = np.where(counted, shadows, np.nan)
    with np.errstate(invalid="ignore"):
        none = ~counted.any(axis=0)
        filled = np.where(none, 0.0, known)  # an empty column would warn
        centre = np.where(none, np.nan, np.nanmedian(filled, axis=0))
        if fixed_variance:
            spread = np.full(centre.shape, np.nanstd(known - centre))
        else:
            spread = np.nanstd(filled, axis=0)
    return centre, spread + 1e-30


def lira_attack(signals: ShadowSignals) -> MembershipScores:
    """Score the candidates offline; each shadow in turn acts as victim to set the threshold."""
    start = signals.num_candidates
    odds = np.stack([log_odds(replies.log_prob) for replies in signals.shadows])
    scores = lira_scores(
        log_odds(signals.victim.log_prob), odds[:, :start], signals.inside[:, :start]
    )
    own, inside = [], []
    for number in range(len(odds)):
        others = np.arange(len(odds)) != number
        played = lira_scores(odds[number], odds[others], signals.inside[others])[start:]
        own.append(played)
        inside.append(signals.inside[number, start:])
    played, truth = np.concatenate(own), np.concatenate(inside)
    known = np.isfinite(played)
    return MembershipScores(scores, best_threshold(played[known], truth[known]))
