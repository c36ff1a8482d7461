"""The parts of the documentation that are made of declarations; ``python -m qpriv.reporting.pages``.

They stand in the pages of ``docs/`` between a pair of comments, and a test compares them.
"""

import re
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from qpriv.attacks.registry import attacks
from qpriv.metrics import sensitivity
from qpriv.quantity import Quantity

from .quantities import POLICY_QUANTITIES, answers, headlines, quantity

_BLOCK = re.compile(r"(<!-- declared: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def attackers() -> str:
    """Return the table of the attacks: who holds what, and what is measured beside what."""
    heads = ("attack and probe", "who; active", "holds", "policy, positions", "measures",
             "beside them", "source")  # fmt: skip
    rows = [astuple(row) for attack in attacks() for row in attack.rows]
    return _table(heads, [*rows, astuple(sensitivity.ROW)])


def figures() -> str:
    """Return the table of the figures that stand in the main tables of a report."""
    heads = ("figure", "unit", "more of it is", "held against", "what it is")
    told = {name for own in headlines() for name in answers(own)}
    shown = [*POLICY_QUANTITIES, *(own for attack in attacks() for own in attack.figures)]
    rows = [
        (f"`{own.name}`{', headline' if own.name in told else ''}", own.unit or "share",
         own.direction, _against(own), own.meaning)
        for own in shown if own.leading
    ]  # fmt: skip
    return _table(heads, rows)


def panels() -> str:
    """Return the table of the headline figures, which charts and dashboards show."""
    heads = ("headline", "figure", "more of it is", "held against")
    rows = [
        (own.axis, f"`{own.logged or own.name}`", own.direction, _against(own))
        for own in headlines()
    ]
    return _table(heads, rows)


def written(page: str) -> str:
    """Return a page with its declared parts as they are now."""
    made = {"attacks": attackers, "figures": figures, "headlines": panels}
    return _BLOCK.sub(lambda found: found[1] + made[found[2]](), page)


def _against(own: Quantity) -> str:
    told = [quantity(own.baseline).short] if own.baseline else []
    return "; ".join([*told, *([f"guessing {own.chance:g}"] if own.chance is not None else [])])


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    for path in sorted(Path("docs").glob("*.md")):
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
