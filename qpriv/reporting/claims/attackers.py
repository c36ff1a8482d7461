"""Choose the attacker that a figure or a claim is about: the strongest one at a real cut."""

from collections.abc import Iterator

from qpriv.quantity import Quantity
from qpriv.result import Scalar

from ..condition import Condition
from ..evidence import Evidence, Figure
from ..quantities import answers, quantity
from .comparison import strongest


def strongest_figure(
    evidence: Evidence, own: Quantity, condition: Condition, *, supposed: bool = False
) -> Figure | None:
    """Return the figure that a headline shows of a policy, or None where none has a value.

    Of a leak it is the largest value over all attackers, settings and questions that were tried;
    of any other quantity the one to show (`Evidence.figure`).

    Args:
        evidence: All figures.
        own: The headline.
        condition: The policy.
        supposed: Return what would be read at a cut that the run does not have, where nothing of
            it was read at one that it has. Such a figure is no headline.
    """
    figures = [
        figure
        for name in answers(own)
        for figure in _latest(evidence, name, condition)
        if figure.estimate
    ]
    real = [figure for figure in figures if not figure.hypothetical]
    found = ([] if real else figures) if supposed else real
    if own.direction != "leak":
        return found[0] if found else None
    return max(found, key=_value, default=None)


def common_attacker(evidence: Evidence, own: Quantity) -> tuple[str, dict[str, Scalar]]:
    """Return name and setting of the attacker whose figures are compared over policies.

    A chart holds one attacker against several policies: the one put to most of them, and of
    these the one that takes most.
    """

    def weight(name: str) -> tuple[int, float]:
        setting = strongest(evidence, name)
        found = [evidence.estimate(name, c, **setting) for c in evidence.conditions]
        values = [estimate.value for estimate in found if estimate]
        return len(values), sum(values)

    names = answers(own)
    name = max(names, key=weight) if own.direction == "leak" else own.name
    return name, strongest(evidence, name)


def beside(name: str, other: str) -> str:
    """Return the name of another figure of the same attack.

    >>> beside("attack/fora/psnr_sensitive", "reid_top1")
    'attack/fora/reid_top1'
    """
    return f"{name.rpartition('/')[0]}/{other}"


def with_attacker(evidence: Evidence, name: str, statement: str) -> str:
    """Add the attacker's name to a statement if the figure was measured.

    Args:
        evidence: All figures.
        name: Name of the figure.
        statement: A sentence with its full stop.
    """
    who = quantity(name).by
    told = f" (attacker: {who})." if who and evidence.named(name) else "."
    return f"{statement.removesuffix('.')}{told}"


def shortness(figure: Figure | None) -> str:
    """Return why a figure says less than it seems: little time, or a cut that no run has."""
    told = ["Short attacker: a lower bound of the leak."] if figure and figure.short else []
    if figure and figure.hypothetical:
        told.append(f"Read at a cut that the run does not have ({figure.channel}).")
    return " ".join(told)


def _latest(evidence: Evidence, name: str, condition: Condition) -> Iterator[Figure]:
    """Yield, for each setting and channel, the figure to show of those of several splits."""
    groups: dict[object, list[Figure]] = {}
    for figure in evidence.named(name):
        if figure.condition == condition:
            groups.setdefault((figure.setting, figure.channel), []).append(figure)
    for figures in groups.values():
        yield max(figures, key=lambda figure: figure.recency)


def _value(figure: Figure) -> float:
    return figure.estimate.value if figure.estimate else float("-inf")
