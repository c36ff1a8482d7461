"""`format_table`: the figures of some runs as plain text, for the end of a command."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

from qpriv.quantity import Quantity
from qpriv.result import Result

from .claims.attacks import chance
from .condition import Condition
from .estimate import Estimate
from .evidence import Evidence, Figure
from .numbers import MISSING, basis, interval, number
from .quantities import headlines, quantity
from .strongest import attacker, baseline, failures, strongest_figure
from .tables.documents import document_tables

WIDTH = 115
"""Most characters of a line."""


def format_table(results: Sequence[Result]) -> str:
    """Return a table of the policies: each figure with its interval on the line below.

    >>> print(format_table([Result(name="accuracy", value=0.84, n=300, ci=(0.8, 0.88), policy="off")]))
    policy             Accuracy
    -----------------  --------------
    off                0.840
    seed not recorded  [0.800, 0.880]
    <BLANKLINE>
    n: Accuracy 300.
    """
    return format_evidence(Evidence.gathered(results))


def format_evidence(evidence: Evidence) -> str:
    """Return the same table of figures whose study tags are known."""
    real = _told(evidence, supposed=False)
    if not real and (documents := format_documents(evidence)):
        return documents
    supposed = _told(evidence, supposed=True)
    channels = sorted({f.channel for f in evidence.figures if f.hypothetical})
    if supposed:
        where = f"Read at a cut that the runs do not have ({', '.join(channels)}):"
        supposed = [where, "", *supposed]
    if not real and not supposed and evidence.figures:
        return f"{len(evidence.figures)} figures, none of them a headline of the report."
    parts = filter(None, ("\n".join(real), "\n".join(supposed), "\n".join(_failed(evidence))))
    return "\n\n".join(parts) or "Nothing was measured yet."


def format_documents(evidence: Evidence) -> str:
    """Return a text table of what document models memorised, a model a row; empty if none."""
    tables = document_tables(evidence, "")
    if not tables:
        return ""
    sizes = tables[0]
    lines = [("model", *(column.title for column in sizes.columns))]
    for row in sizes.rows:
        cells = (f"{cell.text or '-'} {cell.interval}".strip() for cell in row.cells)
        lines.append((row.header, *cells))
    return "\n".join(_aligned(lines))


def _told(evidence: Evidence, *, supposed: bool) -> list[str]:
    """Return a table, in parts where it is too wide, and what its figures are held against."""
    cells = {
        (own.name, each): strongest_figure(evidence, own, each, supposed=supposed)
        for own in headlines()
        for each in evidence.conditions
    }
    columns = [own for own in headlines() if any(_found(cells, own, evidence.conditions))]
    rows = [c for c in evidence.conditions if any(cells[own.name, c] for own in columns)]
    if not supposed:
        rows = [c for c in evidence.conditions if c in rows or _attempts(evidence, c)]
        columns = [own for own in headlines() if own in columns or _attempts(evidence, None, own)]
    if not rows or not columns:
        return []
    lines: list[tuple[str, ...]] = [("policy", *(own.axis for own in columns))]
    for each in rows:
        figures = [cells[own.name, each] for own in columns]
        first = next((f.estimate for f in figures if f and f.estimate), None)
        pairs = zip(columns, figures, strict=True)
        lines.append((each.label, *(_value(evidence, own, each, f) for own, f in pairs)))
        lines.append((_seeds(first) if first else "", *map(_ends, figures)))
    notes = [note for own in columns for note in _notes(evidence, own, _found(cells, own, rows))]
    found = [figure for own in columns for figure in _found(cells, own, rows)]
    short = any(figure.short for figure in found)
    notes += ["* a short attacker: the figure is a lower bound of the leak."] if short else []
    notes = [_sizes(cells, columns, rows), *notes]
    return [*_wrapped(lines), "", *(line for note in notes for line in wrap(note, WIDTH))]


Cells = Mapping[tuple[str, Condition], Figure | None]


def _found(cells: Cells, own: Quantity, conditions: Iterable[Condition]) -> list[Figure]:
    return [figure for each in conditions if (figure := cells[own.name, each])]


def _attempts(evidence: Evidence, condition: Condition | None, *owns: Quantity) -> bool:
    """Return whether a headline was tried in vain, under one policy or any."""
    conditions = [condition] if condition else evidence.conditions
    return any(failures(evidence, own, c) for own in owns or headlines() for c in conditions)


def _seeds(estimate: Estimate) -> str:
    return basis(estimate).partition(", ")[2]


def _value(evidence: Evidence, own: Quantity, condition: Condition, figure: Figure | None) -> str:
    if figure and figure.estimate:
        return number(figure.estimate.value, figure.example.unit) + ("*" if figure.short else "")
    if failed := failures(evidence, own, condition):
        return failed[0].example.status
    return MISSING if evidence.figure(own.name, condition) else "-"


def _ends(figure: Figure | None) -> str:
    estimate = figure.estimate if figure else None
    return interval(estimate.interval, figure.example.unit) if figure and estimate else ""


def _wrapped(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a table as text; columns for which a line has no room follow in a second one."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    parts, room = [[0]], WIDTH - widths[0]
    for column, width in enumerate(widths[1:], start=1):
        room -= width + 2
        if room < 0 and len(parts[-1]) > 1:
            parts.append([0])
            room = WIDTH - widths[0] - width - 2
        parts[-1].append(column)
    tables = [_aligned([tuple(line[c] for c in part) for line in lines]) for part in parts]
    return [line for table in tables for line in ("", *table)][1:]


def _aligned(lines: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rule = tuple("-" * width for width in widths)
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (lines[0], rule, *lines[1:])
    ]


def _sizes(cells: Cells, columns: Sequence[Quantity], rows: Sequence[Condition]) -> str:
    sizes = {
        own.axis: min((f.estimate.n for f in _found(cells, own, rows) if f.estimate), default=0)
        for own in columns
    }
    return f"n: {', '.join(f'{title} {n:,}' for title, n in sizes.items() if n)}."


def _notes(evidence: Evidence, own: Quantity, figures: Sequence[Figure]) -> Iterator[str]:
    """Say who took the figures of a column, and what they are to be held against."""
    who = dict.fromkeys(filter(None, (attacker(evidence, own, each) for each in figures)))
    by = f", by {' or '.join(who)}," if who else ""
    if floors := _floors(evidence, own, figures):
        yield f"{own.short}{by} is to be held against {floors}: {quantity(own.baseline).short}."
    levels = {number(level) for each in figures if (level := chance(each.example))}
    if levels:
        yield f"{own.short}{by} is to be held against chance: {', '.join(sorted(levels))}."
    if own.direction == "use":
        sets = sorted({each.dataset for each in figures} - {""})
        yield from (f"{own.short}: on {', '.join(sets)}." for _ in sets[:1])
    if own.caution:
        yield f"{own.short}: {own.caution}."


def _floors(evidence: Evidence, own: Quantity, figures: Sequence[Figure]) -> str:
    """Return the baseline of each figure; once where all have the same."""
    told: dict[str, list[str]] = {}
    for each in [each for each in figures if quantity(each.name).baseline]:
        floor = baseline(evidence, each)
        known = floor.estimate if floor else None
        unit = " dB" if own.unit == "dB" else ""
        value = f"{number(known.value, own.unit)}{unit}" if known else MISSING
        told.setdefault(value, []).append(each.condition.label)
    if len(told) < 2:
        return "".join(told)
    return ", ".join(f"{value} ({', '.join(labels)})" for value, labels in told.items())


def _failed(evidence: Evidence) -> list[str]:
    failed = sorted({f"{f.name} under {f.condition.label}" for f in evidence.figures if f.failed})
    return [f"Failed: {', '.join(failed)}."] if failed else []
