"""`Compared`: one figure of two runs with its baseline, and such figures as text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qpriv.result import Result

from .estimate import Estimate
from .numbers import MISSING, interval, number
from .quantities import quantity


@dataclass(frozen=True)
class Compared:
    """One figure in both runs.

    Args:
        name: Name of the result.
        dataset: What it was measured on.
        told: What tells it from other figures of that name, such as ``steps 60``.
        one: The first run's last figure, None where it has none.
        other: The second run's.
        difference: The second less the first, None where either has no value.
        floors: What the figure is to be held against in each run, such as its blind baseline;
            None where that is nothing, or was not measured.
    """

    name: str
    dataset: str
    told: str
    one: Result | None
    other: Result | None
    difference: Estimate | None
    floors: tuple[Result | None, Result | None] = (None, None)

    @property
    def by_both(self) -> bool:
        """Return whether both runs have a value."""
        return self.difference is not None


def side_by_side(figures: Sequence[Compared]) -> Iterator[str]:
    """Yield the lines of a table of what both runs measured, then of what one of them did."""
    both = [row for row in figures if row.by_both]
    rest = [row for row in figures if not row.by_both]
    for head, rows in (("measured in both", both), ("measured in one", rest)):
        if rows:
            yield from _table([(head, "A", "B", "B - A"), *map(_row, rows)])
            yield ""


def _row(row: Compared) -> tuple[str, str, str, str]:
    unit = next((r.unit for r in (row.one, row.other) if r), "")
    within = "; ".join(filter(None, (row.dataset, row.told)))
    title = f"{row.name} ({within})" if within else row.name
    one, other = map(_shown, (row.one, row.other), row.floors)
    return title, one, other, _signed(row.difference, unit)


def _shown(result: Result | None, floor: Result | None) -> str:
    if result is None:
        return "not measured"
    if result.value is None:
        return MISSING if result.status == "ok" else result.status
    ends = f" {interval(result.ci, result.unit)}" if result.ci else ""
    return f"{number(result.value, result.unit)}{ends}{_beside(result, floor)}"


def _beside(result: Result, floor: Result | None) -> str:
    """Say what a figure is to be held against."""
    own, known = quantity(result.name), floor.value if floor else None
    if not own.baseline or (known is None and not own.leading):
        return ""
    value = "not measured" if known is None else number(known, result.unit)
    return f" ({quantity(own.baseline).short} {value})"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in padded]


def _signed(difference: Estimate | None, unit: str) -> str:
    if difference is None:
        return MISSING
    sign = "+" if difference.value > 0 else ""
    ends = f" {interval(difference.interval, unit)}" if difference.interval else ""
    return f"{sign}{number(difference.value, unit)}{ends}"
