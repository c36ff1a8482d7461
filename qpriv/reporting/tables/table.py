"""`Table`: what a row, a column and a cell of a report say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from qpriv.key import Scalar
from qpriv.quantity import Quantity
from qpriv.result import Result

from ..claims.attacks import chance
from ..evidence import Figure, Identity
from ..numbers import MISSING, basis, interval, number

_SHORT = "short attacker"
OVER_BUDGET = "over its budget"


@dataclass(frozen=True)
class Cell:
    """One figure of a table.

    Args:
        text: The value, or why there is none; empty where it was not measured.
        interval: The interval, or empty.
        basis: n and seeds, where they differ from the row's, or why there is no value.
        trouble: Whether a probe failed here.
        figure: What it shows, or None.
    """

    text: str = ""
    interval: str = ""
    basis: str = ""
    trouble: bool = False
    figure: Figure | None = None


@dataclass(frozen=True)
class Row:
    """One row: a condition, what it rests on, and its figures.

    Args:
        header: Name of the row.
        meaning: The name in plain words, or empty.
        details: Settings and basis, as short phrases.
        cells: One for each column.
        marks: Warnings such as ``short attacker``.
    """

    header: str
    meaning: str
    details: tuple[str, ...]
    cells: tuple[Cell, ...]
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table with its caption.

    Args:
        key: Identifier within the page.
        caption: What the table shows.
        head: Title of the first column.
        columns: The quantities.
        rows: The rows.
        common: What holds for every row, as short phrases.
        marks: Warnings that hold for every row.
    """

    key: str
    caption: str
    head: str
    columns: tuple[Quantity, ...]
    rows: tuple[Row, ...]
    common: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()

    @property
    def shown(self) -> set[Identity]:
        """Return the contents of its cells."""
        cells = (cell for row in self.rows for cell in row.cells)
        return {cell.figure.identity for cell in cells if cell.figure}


def build_table(
    key: str, caption: str, head: str, columns: tuple[Quantity, ...], rows: Sequence[Row]
) -> Table:
    """Build a table; what every row says is said once, below the caption."""
    details = _shared([row.details for row in rows])
    marks = _shared([row.marks for row in rows])
    own = tuple(
        replace(
            row,
            details=tuple(each for each in row.details if each not in details),
            marks=tuple(each for each in row.marks if each not in marks),
        )
        for row in rows
    )
    return Table(key, caption, head, columns, own, details, marks)


def build_row(
    header: str,
    meaning: str,
    details: Iterable[str],
    figures: Sequence[Figure | None],
    failures: Sequence[Figure] = (),
) -> Row:
    """Build a row; what all cells rest on stands once beside the header."""
    estimates = [figure.estimate for figure in figures if figure]
    bases = {basis(estimate) for estimate in estimates if estimate}
    common = next(iter(bases)) if len(bases) == 1 else ""
    cells = tuple(_cell(figure, own_basis=not common) for figure in figures)
    marks = _marks([*figures, *failures])
    return Row(header, meaning, tuple(filter(None, (*details, common))), cells, marks)


def _cell(figure: Figure | None, *, own_basis: bool) -> Cell:
    if figure is None:
        return Cell()
    estimate = figure.estimate
    example = figure.example
    if estimate is None:
        does_not_apply = example.status in ("ok", "not applicable")
        text = MISSING if does_not_apply else example.status
        why = "; ".join(_remarks(example)) if does_not_apply else ""
        return Cell(text, basis=why, trouble=not does_not_apply, figure=figure)
    exact = example.unit == "bytes" and estimate.interval is None
    ends = "counted" if exact else interval(estimate.interval, example.unit)
    by_chance = chance(example)
    notes = [basis(estimate)] if own_basis else []
    notes += [f"chance {number(by_chance)}"] if by_chance else []
    note = ", ".join(notes)
    value = number(estimate.value, example.unit)
    return Cell(value, ends, note, trouble=bool(figure.failed), figure=figure)


def _marks(figures: Sequence[Figure | None]) -> tuple[str, ...]:
    """Return the warnings of a row: short attackers, failed probes with their note."""
    present = [figure for figure in figures if figure]
    marks = [_SHORT] if any(figure.short for figure in present) else []
    for result in (result for figure in present for result in figure.failed):
        when = "" if result.epoch is None else f" at epoch {result.epoch}"
        marks.append(f"{result.status}{when}" + (f": {result.note}" if result.note else ""))
    measured = [r for f in present for r in f.by_seed.values() if r.status == "ok"]
    notes = {remark for result in measured for remark in _remarks(result)}
    return (*marks, *sorted(notes))


def _remarks(result: Result) -> list[str]:
    """Return the parts of a note, without the mark that has a place of its own.

    Time is no reason why a figure does not apply.
    """
    parts = [part for part in result.note.split("; ") if part and part != _SHORT]
    return [p for p in parts if result.value is not None or not p.startswith(OVER_BUDGET)]


def settings_of(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Return what is known of an attack as phrases, its settings last.

    What a setting has come to by then, such as steps of an attacker that is carried over, stands
    behind it; chance stands beside its figure.
    """
    read = dict.fromkeys(f.channel for f in figures if f.channel not in ("", f.condition.channel))
    attack: dict[str, Scalar] = {"channel": ", ".join(read)} if read else {}
    attack |= {k: v for figure in figures for k, v in figure.example.attack.items()}
    setting = {k: v for figure in figures for k, v in figure.example.setting.items()}
    told = {k: _told(v) for k, v in attack.items() if k not in ("short", "chance", *setting)}
    for key, value in setting.items():
        came_to = f" ({_told(attack[key])} by then)" if attack.get(key, value) != value else ""
        told[key] = f"{_told(value)}{came_to}"
    return tuple(f"{key.replace('_', ' ')}: {phrase}" for key, phrase in told.items())


def _told(value: Scalar) -> str:
    words = {True: "yes", False: "no", None: "null"}
    return words[value] if isinstance(value, bool) or value is None else str(value)


def _shared(phrases: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    first = phrases[0] if phrases else ()
    return tuple(each for each in first if all(each in others for others in phrases))


def table_key(name: str, dataset: str) -> str:
    """Return an identifier for a table of one data set.

    >>> table_key("policies", "FaceScenes/test")
    'policies-facescenes-test'
    """
    return "-".join([name, *("".join(c if c.isalnum() else "-" for c in dataset).split())]).lower()
