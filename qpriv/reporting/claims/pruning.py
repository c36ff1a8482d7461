"""Claims about what pruning keeps: accuracy, sensitive tokens, the order of alpha, the DTP."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ..condition import Condition
from ..estimate import Seed, Term, combine, difference
from ..evidence import Evidence
from ..numbers import number, with_interval
from .comparison import (
    FACE_TOKENS,
    TREND_RATIOS,
    against_ladder,
    aware_halves,
    between_weights,
    compared,
    ladder,
    slope_weights,
)
from .verdict import Claim, judged, missing


def pruning_claims(evidence: Evidence) -> list[Claim]:
    """Return the claims that need no attack."""
    return [
        *accuracy_falls(evidence),
        *sensitive_tokens_go(evidence),
        *sensitive_goes_first(evidence),
        *alpha_order(evidence),
        *dynamic_against_fixed(evidence),
        *dynamic_against_constant(evidence),
    ]


def accuracy_falls(evidence: Evidence) -> Iterator[Claim]:
    """Judge that accuracy falls with the fixed ratio, for each ranking."""
    topic = "Accuracy and ratio"
    ladders = {tuple(rungs.values()): rungs for rungs in _ladders(evidence)}
    for conditions, rungs in ladders.items():
        ranking = _ranking_name(conditions[-1])
        series = [evidence.series("accuracy", each) for each in conditions]
        seeds = [seed for seed in series[0] if all(seed in each for each in series)]
        weights = slope_weights(list(rungs))
        terms: dict[Seed, list[Term]] = {
            seed: [(w, each[seed]) for w, each in zip(weights, series, strict=True)]
            for seed in seeds
        }
        yield judged(
            topic,
            f"Accuracy falls as the fixed ratio rises (ranking {ranking}).",
            combine(terms),
            "Slope of accuracy over the ratio (1 = all tokens dropped)",
            below=0.0,
            needed=f"accuracy of one seed at the ratios {', '.join(f'{r:g}' for r in rungs)}",
        )
    if not ladders:
        yield missing(
            topic, "Accuracy falls as the fixed ratio rises.", "off and two or more fixed ratios"
        )


def sensitive_tokens_go(evidence: Evidence) -> Iterator[Claim]:
    """Judge that ranking by sensitivity removes the sensitive tokens at half the tokens."""
    topic = "Sensitive tokens"
    halves = aware_halves(evidence)
    for each in halves:
        yield judged(
            topic,
            f"{each.label}: fewer than 5 % of the sensitive tokens survive.",
            evidence.estimate(FACE_TOKENS, each),
            "Share of sensitive tokens that survive",
            below=0.05,
            needed=f"{FACE_TOKENS} of {each.label}",
        )
    if not halves:
        yield missing(
            topic,
            "Ranking by sensitivity leaves fewer than 5 % of the sensitive tokens at ratio 0.5.",
            "fixed(0.5,fused)",
        )


def sensitive_goes_first(evidence: Evidence) -> Iterator[Claim]:
    """Judge that SER exceeds 1, with the surviving share beside it: SER alone is no privacy."""
    topic = "Sensitivity exclusion ratio"
    policies = compared(evidence, "dtp")
    for each in [*policies, *aware_halves(evidence)]:
        survive = evidence.estimate(FACE_TOKENS, each)
        beside = (
            f"{with_interval(survive)} of the sensitive tokens survive"
            if survive
            else "how many sensitive tokens survive was not measured"
        )
        yield judged(
            topic,
            f"{each.label}: sensitive patches go first (SER above 1; the source reports 1.20).",
            evidence.estimate("sensitivity_exclusion_ratio", each),
            "SER",
            above=1.0,
            needed=f"sensitivity_exclusion_ratio of {each.label}",
            remark=f"SER alone is no evidence of privacy: {beside}.",
        )
    if not policies:
        yield missing(topic, "Under the DTP sensitive patches go first.", "a dtp policy")


def alpha_order(evidence: Evidence) -> Iterator[Claim]:
    """Judge the source's order of alpha under each utility branch, and whether the two agree."""
    topic = "Weight of utility (alpha)"
    sweeps = alpha_sweeps(evidence)
    for name, sweep in sweeps.items():
        yield judged(
            topic,
            f"{name}: ranking by sensitivity alone (alpha 0) answers better than alpha 1, "
            "as in the source.",
            difference(
                evidence.series("accuracy", sweep[0.0]), evidence.series("accuracy", sweep[1.0])
            ),
            "Accuracy at alpha 0 minus alpha 1",
            above=0.0,
            needed="accuracy of one seed at both ends of the sweep",
            remark=_describe_sweep(evidence, sweep),
        )
    if not sweeps:
        yield missing(
            topic,
            "Ranking by sensitivity alone (alpha 0) answers better than alpha 1, as in the source.",
            "a sweep of alpha from 0 to 1 at beta 1",
        )


def alpha_sweeps(evidence: Evidence) -> dict[str, dict[float, Condition]]:
    """Return the sweeps of alpha by name: the conditions by alpha, from 0 to 1.

    A policy that ranks by ``fused`` and names no alpha has alpha 1.
    """
    groups: dict[str, dict[float, Condition]] = defaultdict(dict)
    for each in evidence.conditions:
        if each.rank_by != "fused" or each.family not in ("fixed", "dtp"):
            continue
        others = [
            f"{n} {v}" for n, v in each.ranking if n not in ("alpha", "rank_by", "in", "behind")
        ]
        base = each.family if each.family == "dtp" else f"fixed {each.ratio:g}"
        branch = [] if "utility" in each.options else ["default utility branch"]
        groups[", ".join([base, *others, *branch])][each.alpha] = each
    whole = {name: group for name, group in groups.items() if {0.0, 1.0} <= group.keys()}
    return {name: dict(sorted(group.items())) for name, group in whole.items()}


def dynamic_against_fixed(evidence: Evidence) -> Iterator[Claim]:
    """Judge the DTP against the fixed ratio that drops as many tokens."""
    topic = "Dynamic threshold"
    policies = compared(evidence, "dtp")
    for each in policies:
        rungs = ladder(evidence, each)
        estimate = against_ladder(evidence, "accuracy", each, rungs, between_weights)
        ratios = list(evidence.mean_ratio(each).values())
        at = f" {sum(ratios) / len(ratios):.2f}" if ratios else ""
        yield judged(
            topic,
            f"{each.label} answers better than a fixed ratio that drops as many tokens.",
            estimate if len(rungs) > 1 else None,
            f"Accuracy minus that of the fixed ratios, interpolated at the mean ratio{at}",
            above=0.0,
            needed="off and fixed ratios of the same ranking and seed",
        )
    if not policies:
        yield missing(topic, "The DTP answers better than a fixed ratio.", "a dtp policy")


def dynamic_against_constant(evidence: Evidence) -> Iterator[Claim]:
    """Judge the DTP against the control that gives every sample its mean ratio."""
    for each in compared(evidence, "dtp"):
        controls = [
            c for c in evidence.conditions if c.family == "constant" and c.ranking == each.ranking
        ]
        control = evidence.series("accuracy", controls[0]) if controls else {}
        yield judged(
            "Dynamic threshold",
            f"{each.label} answers better than its own mean ratio for every sample.",
            difference(evidence.series("accuracy", each), control),
            "Accuracy minus that of the constant control",
            above=0.0,
            needed="the constant control of the same ranking and seed",
        )


def _ladders(evidence: Evidence) -> Iterator[dict[float, Condition]]:
    """Yield each ranking's ladder that has ``off`` and at least two fixed ratios."""
    for each in evidence.conditions:
        rungs = ladder(evidence, each) if each.family == "fixed" else {}
        if 0.0 in rungs and len(rungs) >= 3:
            yield {ratio: rungs[ratio] for ratio in rungs if ratio in TREND_RATIOS} or rungs


def _describe_sweep(evidence: Evidence, sweep: dict[float, Condition]) -> str:
    """List accuracy and kept tokens by alpha, and the order by accuracy."""
    points: dict[float, float] = {}
    cells = []
    for alpha, condition in sweep.items():
        accuracy = evidence.estimate("accuracy", condition)
        kept = evidence.estimate("kept_tokens", condition)
        if accuracy is None:
            continue
        points[alpha] = accuracy.value
        tokens = f"{number(kept.value, 'tokens')} tokens" if kept else "tokens not measured"
        cells.append(f"{alpha:g}: {number(accuracy.value)} with {tokens}")
    order = sorted(points, key=lambda alpha: -points[alpha])
    ranked = " > ".join(f"{alpha:g}" for alpha in order)
    return f"By alpha, {'; '.join(cells)}. Order by accuracy: {ranked}."


def _ranking_name(condition: Condition) -> str:
    return ", ".join(_shown(condition.ranking)) or condition.label


def _shown(ranking: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, value in ranking:
        if name == "rank_by":
            yield value
        elif (name, value) not in (("in", "centralized"), ("behind", "none")):
            yield f"{name} {value}"
