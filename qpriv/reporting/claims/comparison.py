"""What claims compare: policies of one ranking, lines through them, points between them."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from qpriv.attacks.reconstruction.fora import SUPERVISED
from qpriv.attacks.reconstruction.recognition_quantities import FOUND
from qpriv.attacks.reconstruction.scoring import FACE
from qpriv.key import AttackSetting, apart
from qpriv.metrics.sensitivity import TOKENS_KEPT
from qpriv.result import Result, Scalar

from ..condition import Condition
from ..estimate import Estimate, Seed, combine
from ..evidence import Evidence

FACE_PSNR = SUPERVISED.figure(FACE.name)
FACE_TOKENS = TOKENS_KEPT.name
REIDENTIFICATION = SUPERVISED.figure(FOUND.name)
TREND_RATIOS = (0.0, 0.3, 0.5, 0.7, 0.9)

Weights = Callable[[Sequence[float], float], Sequence[float]]


def line_weights(points: Sequence[float], at: float) -> list[float]:
    """Return how much each point counts in the least-squares line's value at ``at``.

    >>> [round(weight, 2) for weight in line_weights([0.0, 0.5, 1.0], 1.0)]
    [-0.17, 0.33, 0.83]
    """
    mean = sum(points) / len(points)
    spread = sum((point - mean) ** 2 for point in points)
    return [1 / len(points) + (at - mean) * (point - mean) / spread for point in points]


def slope_weights(points: Sequence[float]) -> list[float]:
    """Return how much each point counts in the least-squares line's slope.

    >>> slope_weights([0.0, 0.5, 1.0])
    [-1.0, 0.0, 1.0]
    """
    mean = sum(points) / len(points)
    spread = sum((point - mean) ** 2 for point in points)
    return [(point - mean) / spread for point in points]


def between_weights(points: Sequence[float], at: float) -> list[float]:
    """Return the weights that interpolate linearly between the two neighbours of ``at``.

    >>> between_weights([0.0, 0.3, 0.5], 0.45)
    [0.0, 0.25, 0.75]

    Outside the points the nearest one counts alone.
    """
    weights = [0.0] * len(points)
    after = next((i for i, point in enumerate(points) if point >= at), len(points) - 1)
    before = max(after - 1, 0)
    if before == after or at >= points[after]:
        weights[after] = 1.0
        return weights
    share = round((at - points[before]) / (points[after] - points[before]), 12)
    weights[before], weights[after] = 1.0 - share, share
    return weights


def strongest(evidence: Evidence, name: str) -> dict[str, Scalar]:
    """Return the setting of the stronger attacker.

    It is the one who knows the kept positions, and who asks through the trained policy's masks.
    Where several do, as with two budgets, it is the one that was put to most policies, and of
    these the one that takes most.
    """
    strong: dict[str, Scalar] = {"knows_positions": True, "query_policy": "same"}
    # an attacker at a cut that no run has is spoken of where nobody stands at a real one
    figures = [f for f in evidence.named(name) if not f.hypothetical] or evidence.named(name)
    met = [dict(figure.setting) for figure in figures]
    strong = {k: v for k, v in strong.items() if any(setting.get(k) == v for setting in met)}
    attackers: dict[AttackSetting, list[float]] = defaultdict(list)
    for figure in figures:
        own = dict(figure.setting)
        if figure.estimate and all(own.get(k, v) == v for k, v in strong.items()):
            rest = {k: v for k, v in own.items() if k not in strong}
            attackers[AttackSetting.given(rest)].append(figure.estimate.value)
    if len(attackers) < 2:
        return strong
    best = max(attackers, key=lambda each: (len(attackers[each]), sum(attackers[each])))
    return strong | {k: v for k, v in best.parts if k in apart(attackers)}


def compared(evidence: Evidence, family: str) -> list[Condition]:
    """Return the policies of a family that claims speak of: not the points of a sweep of alpha.

    Where there is nothing but a sweep, its points are spoken of.
    """
    members = [each for each in evidence.conditions if each.family == family]
    laddered = [each for each in members if len(ladder(evidence, each)) >= 3]
    plain = [each for each in members if "alpha" not in each.options]
    return laddered or plain or members


def aware_halves(evidence: Evidence) -> list[Condition]:
    """Return the policies that drop half the tokens, ranked with sensitivity."""
    halves = [each for each in evidence.conditions if each.family == "fixed" and each.ratio == 0.5]
    aware = [each for each in halves if each.rank_by in ("fused", "sensitivity")]
    plain = [each for each in aware if "alpha" not in each.options]
    return plain or aware


def unpruned(evidence: Evidence, condition: Condition) -> Condition | None:
    """Return the ``off`` condition that a policy is compared with."""
    candidates = [
        each
        for each in evidence.conditions
        if each.family == "off"
        and (each.paradigm, each.defence) == (condition.paradigm, condition.defence)
        and each.channel == condition.channel
    ]
    return max(candidates, key=lambda each: _agreement(each, condition), default=None)


def ladder(evidence: Evidence, condition: Condition) -> dict[float, Condition]:
    """Return ``off`` and the fixed ratios of the same ranking, by ratio from small to large."""
    rungs = {
        each.ratio: each
        for each in evidence.conditions
        if each.family == "fixed" and each.ranking == condition.ranking and each.ratio is not None
    }
    off = unpruned(evidence, condition)
    if off is not None:
        rungs[0.0] = off
    return dict(sorted(rungs.items()))


def against_ladder(
    evidence: Evidence,
    name: str,
    condition: Condition,
    rungs: Mapping[float, Condition],
    weights: Weights,
    *,
    measure: Callable[[Result], Result] | None = None,
    **setting: Scalar,
) -> Estimate | None:
    """Return a policy's figure minus what its ladder says at the policy's own mean ratio.

    Args:
        evidence: All figures.
        name: The quantity.
        condition: The policy.
        rungs: The fixed ratios it is compared with, from small to large.
        weights: `line_weights` for the trend, `between_weights` for the point on the curve.
        measure: Turns each figure into the one that is compared; as it is if None.
        setting: Which attacker, where the quantity is an attack's.
    """
    ratios = evidence.mean_ratio(condition)
    steps = {each: evidence.mean_ratio(each) for each in rungs.values()}
    series = {each: evidence.series(name, each, **setting) for each in (condition, *steps)}
    terms: dict[Seed, list[tuple[float, Result]]] = {}
    for seed, ratio in ratios.items():
        if not all(seed in figures for figures in series.values()):
            continue
        points = [steps[each].get(seed, asked) for asked, each in rungs.items()]
        factors = dict.fromkeys(series, 0.0)
        factors[condition] = 1.0
        for each, weight in zip(rungs.values(), weights(points, ratio), strict=True):
            factors[each] -= weight
        found = {each: series[each][seed] for each in factors}
        shown = {each: measure(own) if measure else own for each, own in found.items()}
        terms[seed] = [(factor, shown[each]) for each, factor in factors.items()]
    return combine(terms)


def _agreement(one: Condition, other: Condition) -> tuple[int, bool]:
    tags = len(set(one.tags) & set(other.tags)) - len(set(one.tags) - set(other.tags))
    return tags, one.stage == other.stage
