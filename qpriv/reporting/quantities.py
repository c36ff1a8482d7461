"""The quantities of a report: each is declared beside the code that measures it."""

from functools import cache

from qpriv.attacks.extraction import halves, memory
from qpriv.attacks.registry import attacks
from qpriv.metrics.answers import ACCURACY, EMPTY, LOSSES
from qpriv.metrics.sensitivity import SENSITIVITY
from qpriv.metrics.times import CPU_TIME, WALL_CLOCK
from qpriv.pruning.decision import KEPT_TOKENS, KEPT_TOKENS_MEAN
from qpriv.quantity import Quantity
from qpriv.split.traffic import EXCHANGED, PADDING, PASSED, SENT, WHOLE

POLICY_QUANTITIES = (
    ACCURACY,
    KEPT_TOKENS,
    KEPT_TOKENS_MEAN,
    *SENSITIVITY,
    *SENT.values(),
    *PASSED.values(),
    *EXCHANGED.values(),
)
"""Columns of the table of the policies."""

PARADIGM_QUANTITIES = (ACCURACY, *SENT.values(), PADDING, WHOLE, WALL_CLOCK, CPU_TIME)
"""Columns of the table of the ways to divide the work."""


@cache
def quantities() -> dict[str, Quantity]:
    """Return everything that is declared, by the name of its results, in a reader's order."""
    of_attacks = (own for attack in attacks() for own in attack.figures)
    of_documents = (*memory.QUANTITIES, *halves.QUANTITIES)
    every = (*PARADIGM_QUANTITIES, *POLICY_QUANTITIES, *of_attacks, *of_documents, EMPTY, *LOSSES)
    return {own.name: own for own in every}


def quantity(name: str) -> Quantity:
    """Return the declared quantity of a result name, or one made from the name itself.

    Such a figure stands in no main table, but in the one of all the others.

    >>> quantity("attack/idlg/label_recovery").title
    'Label recovery'
    """
    title = name.rpartition("/")[2].replace("_", " ").capitalize()
    return quantities().get(name) or Quantity(name=name, title=title, meaning="", leading=False)


def headlines() -> list[Quantity]:
    """Return the few quantities that summary, charts and dashboards speak of.

    What its owner gains first, what it costs, then what leaks.
    """
    chosen = [own for own in quantities().values() if own.headline]
    return sorted(chosen, key=lambda own: ("use", "neutral", "leak").index(own.direction))


def answers(own: Quantity) -> tuple[str, ...]:
    """Return the names of all figures that answer the question of a headline, its own first."""
    same = [each.name for each in quantities().values() if each.question == own.question]
    return tuple(dict.fromkeys([own.name, *(same if own.question else ())]))


def leaks() -> list[Quantity]:
    """Return the headlines of which more is more leak."""
    return [own for own in headlines() if own.direction == "leak"]


def reading_order(name: str) -> tuple[int, str]:
    """Return the key that sorts result names for a reader: the declared ones first."""
    order = list(quantities())
    return order.index(name) if name in quantities() else len(order), name


def attack_title(name: str) -> str:
    """Return the name of an attack for a heading.

    >>> attack_title("fora"), attack_title("unheard_of")
    ('Image reconstruction (FORA)', 'Unheard of')
    """
    titles = {attack.name: attack.title for attack in attacks()}
    return titles.get(name, name.replace("_", " ").capitalize())
