"""Claims about what an attacker takes: faces, identities, membership."""

from collections.abc import Iterator

from qpriv.result import Result

from ..condition import Condition
from ..estimate import Estimate, combine, difference
from ..evidence import Evidence, Figure
from ..numbers import with_interval
from .comparison import (
    FACE_FLOOR,
    FACE_GAIN,
    FACE_PSNR,
    FACE_TOKENS,
    MEMBERSHIP,
    REIDENTIFICATION,
    REIDENTIFICATION_GONE,
    TREND_RATIOS,
    against_ladder,
    aware_halves,
    compared,
    ladder,
    line_weights,
    strongest,
    unpruned,
)
from .verdict import Claim, judged, missing

# a face that cannot be told from the others is found as often as by chance; small samples make
# "equal" undecidable, so "near" means less than three times chance
NEAR_CHANCE = 3.0
FAR_FROM_CHANCE = 10.0


def attack_claims(evidence: Evidence) -> list[Claim]:
    """Return the claims that rest on an attack."""
    return [
        *faces_cross(evidence),
        *below_trend(evidence),
        *identities_cross(evidence),
        *identities_gone(evidence),
        *membership_falls(evidence),
    ]


def faces_cross(evidence: Evidence) -> Iterator[Claim]:
    """Judge that without pruning the inverter shows more than the mean face: there is a leak."""
    topic = "Face detail without pruning"
    statement = "The inverter beats the mean-face floor inside the face box by at least 2 dB."
    setting = strongest(evidence, FACE_PSNR)
    for off in [each for each in evidence.conditions if each.family == "off"]:
        yield judged(
            topic,
            f"{off.label}: {statement[0].lower()}{statement[1:]}",
            _gain(evidence, off),
            "Face PSNR minus the mean-face floor",
            above=2.0,
            unit="dB",
            needed=f"{FACE_PSNR} and {FACE_FLOOR} without pruning",
            remark=_shortness(evidence.figure(FACE_PSNR, off, **setting)),
        )
    if not any(each.family == "off" for each in evidence.conditions):
        yield missing(topic, statement, "a run without pruning")


def below_trend(evidence: Evidence) -> Iterator[Claim]:
    """Judge that face PSNR lies below the line through off and the fixed ratios of the ranking."""
    topic = "Face PSNR and the linear trend"
    setting = strongest(evidence, FACE_PSNR)
    tested = [*aware_halves(evidence), *_aware(compared(evidence, "dtp"))]
    for each in tested:
        rungs = ladder(evidence, each)
        whole = {ratio: rungs[ratio] for ratio in TREND_RATIOS if ratio in rungs}
        # fewer rungs are no trend: a study that is under way may have but one
        complete = len(whole) == len(TREND_RATIOS)
        yield judged(
            topic,
            f"{each.label}: face PSNR is lower than the linear trend of its ranking.",
            against_ladder(evidence, FACE_PSNR, each, whole, line_weights, **setting)
            if complete
            else None,
            "Face PSNR minus the least-squares line at the policy's mean ratio",
            below=0.0,
            unit="dB",
            needed="face PSNR at off, 0.3, 0.5, 0.7 and 0.9 of the same ranking and seed",
            remark=_shortness(evidence.figure(FACE_PSNR, each, **setting)),
        )
    if not tested:
        yield missing(
            topic,
            "Ranking by sensitivity lowers face PSNR below the linear trend.",
            "fixed(0.5,fused) or dtp(fused)",
        )


def identities_cross(evidence: Evidence) -> Iterator[Claim]:
    """Judge that without pruning the reconstructed face is found in a gallery."""
    for off in [each for each in evidence.conditions if each.family == "off"]:
        yield _against_chance(
            evidence,
            off,
            f"{off.label}: a reconstructed face is found in the gallery at least ten times as "
            "often as by chance.",
            above=FAR_FROM_CHANCE,
        )


def identities_gone(evidence: Evidence) -> Iterator[Claim]:
    """Judge that where the face's tokens are gone, so is the identity."""
    attacked = {figure.condition for figure in evidence.named(REIDENTIFICATION)}
    for each in evidence.conditions:
        if each not in attacked:
            continue
        if evidence.estimate(REIDENTIFICATION_GONE, each) is not None:
            yield _against_chance(
                evidence,
                each,
                f"{each.label}: where no patch on the face crossed, the face is found hardly more "
                f"often than by chance (less than {NEAR_CHANCE:g} times).",
                below=NEAR_CHANCE,
                name=REIDENTIFICATION_GONE,
            )
            continue
        survive = evidence.estimate(FACE_TOKENS, each)
        if each.family == "off" or survive is None or survive.value >= 0.05:
            continue
        yield _against_chance(
            evidence,
            each,
            f"{each.label}: with the face's tokens gone, the face is found hardly more often than "
            f"by chance (less than {NEAR_CHANCE:g} times).",
            below=NEAR_CHANCE,
        )


def membership_falls(evidence: Evidence) -> Iterator[Claim]:
    """Judge for each query policy whether pruning lowers the AUC of membership inference."""
    topic = "Membership"
    halves = [each for each in compared(evidence, "fixed") if each.ratio == 0.5]
    judged_here = [*halves, *compared(evidence, "dtp")]
    figures = [f for f in evidence.named(MEMBERSHIP) if f.condition in judged_here]
    for figure in figures:
        reference = _unpruned_attack(evidence, figure)
        setting = dict(figure.setting)
        query = setting.get("query_policy", "not recorded")
        attacker = evidence.attacker(figure)
        attacker = f", {attacker}" if attacker else ""
        blind = evidence.estimate("attack/membership/blind_auc", figure.condition, **setting)
        yield judged(
            topic,
            f"{figure.condition.label}, query policy {query}{attacker}: pruning lowers the AUC.",
            difference(figure.measured, reference.measured) if reference else None,
            "AUC minus the AUC without pruning",
            below=0.0,
            needed="the same attack without pruning, on the same seed",
            remark=f"AUC {with_interval(figure.estimate)}; without the model (blind baseline) "
            f"{with_interval(blind)}. {_shortness(figure)}".strip(),
        )
    if not figures:
        yield missing(topic, "Pruning lowers the AUC of membership inference.", MEMBERSHIP)


def _gain(evidence: Evidence, off: Condition) -> Estimate | None:
    """Return the stronger attacker's gain over the mean face, paired by image where it is given."""
    paired = evidence.estimate(FACE_GAIN, off, **strongest(evidence, FACE_GAIN))
    return paired or difference(
        evidence.series(FACE_PSNR, off, **strongest(evidence, FACE_PSNR)),
        evidence.series(FACE_FLOOR, off, **strongest(evidence, FACE_FLOOR)),
    )


def _aware(conditions: list[Condition]) -> list[Condition]:
    return [each for each in conditions if each.rank_by in ("fused", "sensitivity")]


def _against_chance(
    evidence: Evidence,
    condition: Condition,
    statement: str,
    *,
    above: float | None = None,
    below: float | None = None,
    name: str = REIDENTIFICATION,
) -> Claim:
    """Judge top-1 re-identification as a multiple of chance, one in the size of the gallery."""
    figure = evidence.figure(name, condition, **strongest(evidence, name))
    measured = figure.measured if figure else {}
    chances = {seed: chance(result) for seed, result in measured.items()}
    known = {seed: 1.0 / value for seed, value in chances.items() if value is not None}
    return judged(
        "Re-identification",
        statement,
        combine({seed: [(factor, measured[seed])] for seed, factor in known.items()}),
        "Top-1 rate in multiples of chance",
        above=above,
        below=below,
        needed=f"{name} with its chance level for {condition.label}",
        remark=f"Top-1 rate {with_interval(figure.estimate if figure else None)}. "
        f"{_shortness(figure)}".strip(),
    )


def chance(result: Result) -> float | None:
    """Return the rate of hits of a blind guess that an attack states, or None."""
    stated = result.attack.get("chance")
    return float(stated) if isinstance(stated, int | float) and stated > 0 else None


def _unpruned_attack(evidence: Evidence, figure: Figure) -> Figure | None:
    """Return the same attack on the unpruned model, where every query policy is the same."""
    off = unpruned(evidence, figure.condition)
    wanted = {key: value for key, value in figure.setting if key != "query_policy"}
    candidates = [each for each in evidence.named(figure.name) if each.condition == off]
    return next((each for each in candidates if wanted.items() <= dict(each.setting).items()), None)


def _shortness(figure: Figure | None) -> str:
    return "Short attacker: a lower bound of the leak." if figure and figure.short else ""
