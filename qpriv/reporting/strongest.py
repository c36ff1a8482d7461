"""The figure behind a headline: its attacker, its baseline and its chance level."""

from collections.abc import Sequence

from qpriv.key import AttackSetting
from qpriv.quantity import Quantity

from .claims.attackers import common_attacker as common_attacker
from .claims.attackers import strongest_figure as strongest_figure
from .claims.attacks import chance
from .condition import Condition
from .evidence import Evidence, Figure
from .numbers import MISSING, number
from .quantities import answers, quantity


def by_whom(evidence: Evidence, own: Quantity, figure: Figure) -> str:
    """Return the attacker of a headline figure and its setting; empty if only one was tried."""
    told = attacker(evidence, own, figure)
    settings = [AttackSetting(each.setting) for each in evidence.named(figure.name)]
    phrase = "" if len(set(settings)) < 2 else evidence.attacker(figure)
    query = dict(figure.setting).get("query_policy")
    asked = f"query policy {query}" if query and figure.condition.family != "off" else ""
    return ", ".join(filter(None, (told, phrase, asked)))


def attacker(evidence: Evidence, own: Quantity, figure: Figure) -> str:
    """Return the attacker of a headline figure; empty if only one was tried."""
    measured = [name for name in answers(own) if evidence.named(name)]
    told = figure.name.startswith("attack/") or len(measured) > 1
    return quantity(figure.name).by if told else ""


def read_by(evidence: Evidence, own: Quantity, figures: Sequence[Figure]) -> str:
    """Return a caption sentence: the attackers, and the cut if it is not one of the runs'."""
    who = dict.fromkeys(filter(None, (attacker(evidence, own, each) for each in figures)))
    cuts = dict.fromkeys(each.channel for each in figures if each.hypothetical)
    told = [f"By {' or '.join(who)}"] if who else []
    told += [f"at a cut the runs do not have ({', '.join(cuts)})"] if cuts else []
    sentence = ", ".join(told)
    return f"{sentence[0].upper()}{sentence[1:]}. " if sentence else ""


def held_against(evidence: Evidence, figure: Figure) -> str:
    """Describe the baseline of a figure under the same setting, and its chance level."""
    own = quantity(figure.name)
    told, prior, level = [], figure.example.attack.get("prior"), chance(figure.example)
    if own.baseline:
        name, floor = quantity(own.baseline).short, baseline(evidence, figure)
        unit = " dB" if own.unit == "dB" else ""
        value = floor.estimate if floor else None
        if value:
            told.append(f"{name} {number(value.value, own.unit)}{unit}")
        elif prior is None:  # else there is another guess to hold it against
            told.append(f"{name} {_why(floor)}")
    if prior is not None:
        told.append(f"guessing {number(float(prior))}")
    elif level:
        told.append(f"chance {number(level)}")
    elif own.chance is not None:
        told.append(f"guessing {own.chance:g}")
    return " · ".join(told)


def baseline(evidence: Evidence, figure: Figure) -> Figure | None:
    """Return the baseline of a figure, preferably measured under the same setting."""
    name = quantity(figure.name).baseline
    found = [f for f in evidence.named(name) if f.condition == figure.condition]

    def likeness(floor: Figure) -> tuple[bool, bool, int, bool]:
        shared = len(set(floor.setting) & set(figure.setting))
        same = floor.dataset == figure.dataset
        return floor.estimate is not None, floor.channel == figure.channel, shared, same

    return max(found, key=likeness, default=None)


def failures(evidence: Evidence, own: Quantity, condition: Condition) -> list[Figure]:
    """Return the failed measurements of a headline, under the figure's or the attack's name."""
    names = {name for each in answers(own) for name in (each, each.rpartition("/")[0]) if name}
    return [
        figure
        for name in sorted(names)
        for figure in evidence.named(name)
        if figure.condition == condition and figure.failed
    ]


def margin(evidence: Evidence, figure: Figure) -> float:
    """Return how far a figure exceeds its baseline or chance level; its value without either."""
    own, floor = quantity(figure.name), baseline(evidence, figure)
    prior = figure.example.attack.get("prior")
    guess = float(prior or chance(figure.example) or own.chance or 0.0)
    held = floor.estimate.value if floor and floor.estimate else guess
    return (figure.estimate.value if figure.estimate else float("-inf")) - held


def _why(floor: Figure | None) -> str:
    if floor is None:
        return "not measured"
    return floor.example.status if floor.failed else MISSING
