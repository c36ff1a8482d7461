"""RMIA: is the victim more confident on this sample than on others, relative to other models?

Zarifzadeh et al., *Low-Cost High-Power Membership Inference Attacks*, ICML 2024. Works with very
few reference models.
"""

import numpy as np
from numpy.typing import NDArray

from qpriv.metrics.membership import best_threshold

from .scoring import MembershipScores, ShadowSignals

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

OFFLINE = 0.3
"""The published ``a``: how far a model that never saw a sample is below the average model."""


def reference_probability(outside_mean: Floats, a: float = OFFLINE) -> Floats:
    """Estimate p(x) over models with and without x from those without x (appendix B.2.2).

    >>> reference_probability(np.asarray([0.5]), a=1.0).tolist()
    [0.5]
    """
    return np.asarray(((1 + a) * outside_mean + (1 - a)) / 2)


def rmia_scores(ratios: Floats, population: Floats, gamma: float = 1.0) -> Floats:
    """Return the share of the population that each sample dominates (equation 2).

    Sample x dominates z if ``(p(x | victim) / p(x)) / (p(z | victim) / p(z)) > gamma``. The code
    sorts the population once instead of computing all pairs.

    Args:
        ratios: ``p(x | victim) / p(x)`` of the samples, ``[n]``.
        population: The same of the population, ``[m]``.
        gamma: Smallest ratio at which a sample dominates another one.

    >>> rmia_scores(np.asarray([1.0, 3.0]), np.asarray([0.5, 2.0])).tolist()
    [0.5, 1.0]
    """
    below = np.searchsorted(np.sort(population * gamma), ratios, side="left")
    return np.asarray(below / len(population))


def rmia_attack(signals: ShadowSignals) -> MembershipScores:
    """Score the candidates; each shadow in turn acts as victim to set the threshold.

    The population is the attacker's own samples. The victim is not queried about them: replies of
    shadows with the same recipe that never saw them (OUT) take its place.
    """
    start = signals.num_candidates
    probability = np.stack([np.exp(replies.log_prob) for replies in signals.shadows])
    outside = [
        _outside_mean(signals, probability, number) for number in (None, *range(len(probability)))
    ]
    reference = [reference_probability(mean) for mean in outside]
    own, inside, population = [], [], []
    for number, row in enumerate(probability):
        ratios = (row / reference[number + 1])[start:]
        seen = signals.inside[number, start:]
        known = np.isfinite(ratios)
        played_against = ratios[~seen & known]
        own.append(rmia_scores(ratios[known], played_against))
        inside.append(seen[known])
        population.append(played_against)
    victim = np.exp(signals.victim.log_prob) / reference[0][:start]
    scores = rmia_scores(victim, np.concatenate(population))
    return MembershipScores(scores, best_threshold(np.concatenate(own), np.concatenate(inside)))


def _outside_mean(signals: ShadowSignals, probability: Floats, without: int | None) -> Floats:
    counted = ~signals.inside
    if without is not None:
        counted = counted & (np.arange(len(counted)) != without)[:, None]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(counted, probability, 0).sum(axis=0) / counted.sum(axis=0))
