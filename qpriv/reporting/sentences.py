"""The sentences of a summary: each is made from figures, and none of what was not measured."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from qpriv.attacks.membership.scoring import MEMBERSHIP
from qpriv.attacks.reconstruction.fora import SUPERVISED
from qpriv.attacks.reconstruction.recognition_quantities import FOUND
from qpriv.attacks.reconstruction.scoring import FACE, IMAGE
from qpriv.attacks.registry import attacks
from qpriv.declaration import Attack
from qpriv.metrics.answers import ACCURACY
from qpriv.metrics.membership import AUC
from qpriv.pruning.decision import KEPT_TOKENS
from qpriv.quantity import Quantity

from .condition import Condition
from .evidence import Evidence, Figure
from .numbers import number
from .quantities import quantity
from .strongest import baseline, by_whom, held_against, margin, strongest_figure

MOST_OTHERS = 3
"""Figures of an attack without a headline of its own that the summary names."""

_BELOW = (
    "Below that guess is no evidence of safety: the guess is told where the face is, and a face "
    "that is repainted badly may still be recognised."
)
_SHORT = "The attackers had little time: read these as lower bounds."


def utility(evidence: Evidence, conditions: Sequence[Condition]) -> list[str]:
    """Say which share of the questions of which split is answered right."""
    found = [(c, evidence.figure(ACCURACY.name, c)) for c in conditions]
    figures = [figure for _, figure in found if figure and figure.estimate]
    sets = {figure.dataset for figure in figures}
    if not figures:
        return []
    parts = [_answered(evidence, figure, several=len(sets) > 1) for figure in figures]
    of = f" of {next(iter(sets))}" if len(sets) == 1 and sets != {""} else ""
    return [f"Utility: share of the questions{of} that are answered right: {'; '.join(parts)}."]


def _answered(evidence: Evidence, figure: Figure, *, several: bool) -> str:
    kept = evidence.estimate(KEPT_TOKENS.name, figure.condition)
    told = [figure.dataset] if several and figure.dataset else []
    told += [f"{number(kept.value, 'tokens')} tokens kept"] if kept else []
    behind = f" ({', '.join(told)})" if told else ""
    value = figure.estimate.value if figure.estimate else float("nan")
    return f"{figure.condition.label} {100 * value:.0f} %{behind}"


def reconstruction(evidence: Evidence, conditions: Sequence[Condition]) -> Iterator[str]:
    """Say how well pictures are repainted, in the face box and whole, against a blind guess."""
    face, image = SUPERVISED.declared(FACE.name), SUPERVISED.declared(IMAGE.name)
    for supposed in (False, True):
        faces = _figures(evidence, face, conditions, supposed=supposed)
        images = _figures(evidence, image, conditions, supposed=supposed)
        if faces:
            how = "how well the face is repainted, against an average face at its true place"
            yield _repainted(evidence, f"Faces{_all_by(evidence, face, faces)}", how, face, faces)
        if images:
            how = "how well the whole picture is repainted, against the mean picture"
            topic = f"Pictures{_all_by(evidence, image, images)}"
            yield _repainted(evidence, topic, how, image, images)


def _repainted(
    evidence: Evidence, topic: str, how: str, own: Quantity, figures: Sequence[Figure]
) -> str:
    gaps = [_gap(evidence, figure) for figure in figures]
    whom = _whom(evidence, own, figures)
    parts = [
        f"{figure.condition.label} {_told(figure)}{gap}{whom.get(figure, '')}"
        for figure, gap in zip(figures, gaps, strict=True)
    ]
    notes = [_SHORT] if any(figure.short for figure in figures) else []
    notes += [_BELOW] if any("below" in gap for gap in gaps) else []
    return " ".join([f"{_where(topic, figures)} ({how}): {'; '.join(parts)}.", *notes])


def _gap(evidence: Evidence, figure: Figure) -> str:
    """Say how far a reconstruction lies above or below its floor."""
    floor = baseline(evidence, figure)
    if not floor or not floor.estimate or not figure.estimate:
        return " (no floor measured)"
    difference = round(figure.estimate.value - floor.estimate.value, 1)
    side = "above" if difference > 0 else "below" if difference < 0 else ""
    return f" ({abs(difference):.1f} dB {side} it)" if side else " (level with it)"


def recognition(evidence: Evidence, conditions: Sequence[Condition]) -> Iterator[str]:
    """Say how often a person is recognised in a reconstruction, or that it was not measured."""
    own = SUPERVISED.declared(FOUND.name)
    for supposed in (False, True):
        figures = _figures(evidence, own, conditions, supposed=supposed)
        if figures:
            how = "how often the person in a repainted face stands first in a gallery"
            whom = _whom(evidence, own, figures)
            parts = [
                f"{each.condition.label} {_told(each)} ({_against(evidence, each)})"
                f"{whom.get(each, '')}"
                for each in figures
            ]
            topic = _where(f"Recognition{_all_by(evidence, own, figures)}", figures)
            yield f"{topic} ({how}): {'; '.join(parts)}."


def membership(evidence: Evidence, conditions: Sequence[Condition]) -> Iterator[str]:
    """Say how well the strongest attack identifies members, beside the blind baseline."""
    own = MEMBERSHIP.declared(AUC.name)
    figures = _figures(evidence, own, conditions)
    if figures:
        whom = _whom(evidence, own, figures)
        parts = [
            f"{each.condition.label} {_told(each)} ({_against(evidence, each)}){whom.get(each, '')}"
            for each in figures
        ]
        yield (
            f"Membership{_all_by(evidence, own, figures)} (AUC of telling training images from "
            "others, against what the data alone tell without the model): "
            f"{'; '.join(parts)}."
        )


def other_attacks(evidence: Evidence) -> Iterator[str]:
    """Say of every attack that has no headline what it takes where it takes most."""
    for attack, supposed in product(attacks(), (False, True)):
        told = [_largest(evidence, own, supposed) for own in attack.figures if _counts(attack, own)]
        figures = sorted((each for each in told if each), key=lambda each: -margin(evidence, each))
        if figures:
            parts = [
                f"{quantity(each.name).title} {_told(each)}{_behind(evidence, each)} under "
                f"{_whose(evidence, each)}"
                for each in figures[:MOST_OTHERS]
            ]
            rest = len(figures) - len(parts)
            more = f"; {rest} more in the tables" if rest else ""
            topic = _where(attack.topic or attack.title, figures)
            yield f"{topic}: {'; '.join(parts)}{more}."


def _counts(attack: Attack, own: Quantity) -> bool:
    """Return whether a figure is a leak that no headline speaks of."""
    spoken = {each.question for each in (*SUPERVISED.quantities, *MEMBERSHIP.quantities)} - {""}
    headlined = any(each.question in spoken for each in attack.quantities)
    return own.leading and own.direction == "leak" and not headlined and not own.question


def _largest(evidence: Evidence, own: Quantity, supposed: bool) -> Figure | None:
    found = _figures(evidence, own, evidence.conditions, supposed=supposed)
    return max(found, key=lambda figure: margin(evidence, figure), default=None)


def _figures(
    evidence: Evidence,
    own: Quantity,
    conditions: Iterable[Condition],
    *,
    supposed: bool = False,
) -> list[Figure]:
    found = (strongest_figure(evidence, own, c, supposed=supposed) for c in conditions)
    return [figure for figure in found if figure]


def _told(figure: Figure) -> str:
    unit = figure.example.unit
    value = figure.estimate.value if figure.estimate else float("nan")
    return number(value, unit) + (" dB" if unit == "dB" else "")


def _against(evidence: Evidence, figure: Figure) -> str:
    return held_against(evidence, figure) or "nothing to hold it against"


def _behind(evidence: Evidence, figure: Figure) -> str:
    against = held_against(evidence, figure)
    return f" ({against})" if against else ""


def _whom(evidence: Evidence, own: Quantity, figures: Sequence[Figure]) -> dict[Figure, str]:
    """Return who took each figure, to stand behind it; nothing where all had the same attacker."""
    whom = {each: by_whom(evidence, own, each) for each in figures}
    several = len(set(whom.values())) > 1
    return {each: f", {who}" for each, who in whom.items() if who and several}


def _all_by(evidence: Evidence, own: Quantity, figures: Sequence[Figure]) -> str:
    """Return who took all of some figures, to stand before them; nothing where it was not one."""
    whom = {by_whom(evidence, own, each) for each in figures}
    return f", {whom.pop()}" if len(whom) == 1 and whom != {""} else ""


def _whose(evidence: Evidence, figure: Figure) -> str:
    """Return the condition, and of several attackers which."""
    return ", ".join(filter(None, (figure.condition.label, evidence.attacker(figure))))


def _where(topic: str, figures: Sequence[Figure]) -> str:
    """Return the topic, and of a cut that no run has which."""
    channels = sorted({figure.channel for figure in figures if figure.hypothetical})
    return f"{topic}, at a cut these runs do not have ({join(channels)})" if channels else topic


def join(parts: Sequence[str]) -> str:
    """Return parts as a list in a sentence.

    >>> join(["a"]), join(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
