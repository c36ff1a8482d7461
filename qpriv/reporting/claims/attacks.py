"""Claims about what an attacker takes: faces, identities, membership."""

from collections.abc import Iterator

from qpriv.attacks.reconstruction.recognition_quantities import FOUND_GONE
from qpriv.attacks.registry import attacks
from qpriv.declaration import Attack, Claimed
from qpriv.quantity import Quantity
from qpriv.result import Result

from ..condition import Condition
from ..estimate import Estimate, combine, difference
from ..evidence import Evidence, Figure
from ..numbers import MISSING, with_interval
from ..quantities import quantity
from .attackers import beside, common_attacker, shortness, strongest_figure, with_attacker
from .comparison import (
    FACE_TOKENS,
    REIDENTIFICATION,
    compared,
    strongest,
    unpruned,
)
from .trend import below_random, below_trend
from .verdict import Claim, judged, missing

# a face that cannot be told from the others is found as often as by chance; small samples make
# "equal" undecidable, so "near" means less than three times chance
NEAR_CHANCE = 3.0


def attack_claims(evidence: Evidence) -> list[Claim]:
    """Return the claims that rest on an attack."""
    return [
        *declared_claims(evidence),
        *below_trend(evidence),
        *below_random(evidence),
        *identities_gone(evidence),
    ]


def declared_claims(evidence: Evidence) -> Iterator[Claim]:
    """Judge what is claimed of each attack, where it is declared."""
    for attack in attacks():
        for claim in attack.claims:
            made = [*_declared(evidence, attack, claim)]
            if not made and claim.without:
                statement = claim.statement[0].upper() + claim.statement[1:]
                made = [missing(claim.topic, statement, claim.without)]
            yield from made


def _declared(evidence: Evidence, attack: Attack, claim: Claimed) -> Iterator[Claim]:
    declared = quantity(attack.figure(claim.quantity))
    setting = strongest(evidence, declared.name)
    for condition in _conditions(evidence, claim):
        own, figures = declared, [evidence.figure(declared.name, condition, **setting)]
        if claim.strongest and (found := _strongest(evidence, declared, condition)):
            own, figures = quantity(found.name), [found]
        if claim.against == "unpruned":  # each attacker has its own unpruned counterpart
            figures = [f for f in evidence.named(own.name) if f.condition == condition]
        for figure in figures:
            statement = f"{_named(evidence, condition, figure, claim)}: {claim.statement}"
            estimate, needed = _tested(evidence, own, claim, condition, figure)
            yield judged(
                claim.topic,
                with_attacker(evidence, own.name, statement) if claim.strongest else statement,
                estimate,
                claim.tested,
                above=claim.above,
                below=claim.below,
                unit=own.unit if claim.against in ("nothing", "baseline") else "",
                needed=needed,
                remark=_remark(evidence, own, claim, figure),
            )


def _strongest(evidence: Evidence, own: Quantity, condition: Condition) -> Figure | None:
    """Return the figure of the strongest attacker, at a cut that no run has if at no other."""
    real = strongest_figure(evidence, own, condition)
    return real or strongest_figure(evidence, own, condition, supposed=True)


def _conditions(evidence: Evidence, claim: Claimed) -> list[Condition]:
    if claim.under == "unpruned":
        return [each for each in evidence.conditions if each.family == "off"]
    halves = [each for each in compared(evidence, "fixed") if each.ratio == 0.5]
    return [*halves, *compared(evidence, "dtp")]


def _tested(
    evidence: Evidence, own: Quantity, claim: Claimed, condition: Condition, figure: Figure | None
) -> tuple[Estimate | None, str]:
    """Return what a claim speaks of, and what must be run where it was not measured."""
    match claim.against:
        case "nothing":
            return figure.estimate if figure else None, f"{own.name} of {condition.label}"
        case "baseline":
            needed = f"{own.name} and {own.baseline} of {condition.label}"
            name = beside(own.name, claim.paired)
            paired = evidence.estimate(name, condition, **strongest(evidence, name))
            floor = evidence.series(own.baseline, condition, **strongest(evidence, own.baseline))
            return paired or difference(figure.measured if figure else {}, floor), needed
        case "chance":
            needed = f"{own.name} with its chance level for {condition.label}"
            return multiple_of_chance(figure), needed
        case "unpruned":
            reference = _unpruned_attack(evidence, figure) if figure else None
            against = reference.measured if reference else {}
            needed = "the same attack without pruning, on the same seed"
            return difference(figure.measured if figure else {}, against), needed


def _named(evidence: Evidence, condition: Condition, figure: Figure | None, claim: Claimed) -> str:
    """Return the policy, and of several attackers which."""
    if figure is None or claim.against != "unpruned":
        return condition.label
    query = dict(figure.setting).get("query_policy", "not recorded")
    attacker = evidence.attacker(figure)
    return ", ".join(filter(None, (condition.label, f"query policy {query}", attacker)))


def _remark(evidence: Evidence, own: Quantity, claim: Claimed, figure: Figure | None) -> str:
    """Return what stands beside the tested quantity: the figure itself, and its baseline."""
    if figure is None:
        return ""
    told = []
    decided = claim.against == "baseline" and figure.estimate
    if claim.against in ("chance", "unpruned") or not decided:
        told.append(_standing(own, figure))
    if claim.against in ("baseline", "unpruned") and own.baseline and figure.estimate:
        floor = evidence.estimate(own.baseline, figure.condition, **dict(figure.setting))
        told.append(f"{quantity(own.baseline).short} {with_interval(floor, own.unit)}")
    return f"{'; '.join(told) + '. ' if told else ''}{shortness(figure)}".strip()


def _standing(own: Quantity, figure: Figure) -> str:
    """Return a figure as it stands, or why it has no value."""
    if figure.estimate:
        return f"{own.short} {with_interval(figure.estimate, own.unit)}"
    example = figure.example
    why = f", {example.note}" if example.note else ""
    return f"{own.short} {example.status if figure.failed else MISSING}{why}"


def identities_gone(evidence: Evidence) -> Iterator[Claim]:
    """Judge that where the face's tokens are gone, so is the identity."""
    name, _ = common_attacker(evidence, quantity(REIDENTIFICATION))
    gone = beside(name, FOUND_GONE.name)
    attacked = {figure.condition for figure in evidence.named(name)}
    for each in evidence.conditions:
        if each not in attacked:
            continue
        if evidence.estimate(gone, each) is not None:
            yield _against_chance(
                evidence,
                each,
                f"{each.label}: where no patch on the face crossed, the face is found hardly more "
                f"often than by chance (less than {NEAR_CHANCE:g} times).",
                gone,
                by=name,
            )
            continue
        survive = evidence.estimate(FACE_TOKENS, each)
        if each.family == "off" or survive is None or survive.value >= 0.05:
            continue
        yield _against_chance(
            evidence,
            each,
            f"{each.label}: with the face's tokens gone, the face is found hardly more often "
            f"than by chance (less than {NEAR_CHANCE:g} times).",
            name,
            by=name,
        )


def _against_chance(
    evidence: Evidence, condition: Condition, statement: str, name: str, *, by: str
) -> Claim:
    """Judge that a face is found hardly more often than by chance.

    Args:
        evidence: All figures.
        condition: The policy.
        statement: The claim.
        name: The rate that is judged.
        by: A figure that names the attacker.
    """
    figure = evidence.figure(name, condition, **strongest(evidence, name))
    return judged(
        "Re-identification",
        with_attacker(evidence, by, statement),
        multiple_of_chance(figure),
        "Top-1 rate in multiples of chance",
        below=NEAR_CHANCE,
        needed=f"{name} with its chance level for {condition.label}",
        remark=f"{_standing(quantity(name), figure)}. {shortness(figure)}".strip()
        if figure
        else "",
    )


def multiple_of_chance(figure: Figure | None) -> Estimate | None:
    """Return a rate as a multiple of what guessing gives, such as one in the size of a gallery."""
    measured = figure.measured if figure else {}
    chances = {seed: chance(result) for seed, result in measured.items()}
    known = {seed: 1.0 / value for seed, value in chances.items() if value is not None}
    return combine({seed: [(factor, measured[seed])] for seed, factor in known.items()})


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
