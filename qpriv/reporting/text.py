"""`format_table`: the figures of some runs as plain text, for the end of a command."""

from collections.abc import Sequence

from qpriv.result import Result

from .claims.comparison import strongest
from .condition import Condition
from .estimate import Estimate
from .evidence import Evidence, Figure
from .numbers import MISSING, basis, interval, number
from .quantities import headlines, quantity
from .tables.documents import document_tables


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
    names = {figure.name for figure in evidence.figures}
    columns = [(own.axis, own.name) for own in headlines() if own.name in names]
    rows = [row for each in evidence.conditions if (row := _rows(evidence, each, columns))]
    if not rows and (documents := format_documents(evidence)):
        return documents
    if not rows:
        return "Nothing was measured yet."
    lines = [("policy", *(title for title, _ in columns)), *(line for row in rows for line in row)]
    return "\n".join([*_aligned(lines), *_footnotes(evidence, columns)])


def format_documents(evidence: Evidence) -> str:
    """Return what document models memorised as text, a model a row; empty where there is none."""
    tables = document_tables(evidence, "")
    if not tables:
        return ""
    sizes = tables[0]
    lines = [("model", *(column.title for column in sizes.columns))]
    for row in sizes.rows:
        cells = (f"{cell.text or '-'} {cell.interval}".strip() for cell in row.cells)
        lines.append((row.header, *cells))
    return "\n".join(_aligned(lines))


def _rows(
    evidence: Evidence, condition: Condition, columns: Sequence[tuple[str, str]]
) -> list[tuple[str, ...]]:
    """Return the two lines of a policy: figures, and below them intervals."""
    figures = [evidence.figure(name, condition, **strongest(evidence, name)) for _, name in columns]
    estimates = [figure.estimate if figure else None for figure in figures]
    first = next((estimate for estimate in estimates if estimate), None)
    if first is None and not any(figure and figure.failed for figure in figures):
        return []
    values = (condition.label, *(_value(figure) for figure in figures))
    ends = (
        interval(estimate.interval, figure.example.unit) if figure and estimate else ""
        for figure, estimate in zip(figures, estimates, strict=True)
    )
    return [values, (_seeds(first) if first else "", *ends)]


def _seeds(estimate: Estimate) -> str:
    return basis(estimate).partition(", ")[2]


def _value(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    if figure.estimate is None:
        return figure.example.status if figure.failed else MISSING
    return number(figure.estimate.value, figure.example.unit) + ("*" if figure.short else "")


def _aligned(lines: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rule = tuple("-" * width for width in widths)
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (lines[0], rule, *lines[1:])
    ]


def _footnotes(evidence: Evidence, columns: Sequence[tuple[str, str]]) -> list[str]:
    """Say what figures rest on and are to be held against, and what their marks mean."""
    sizes = {
        title: min((f.estimate.n for f in evidence.named(name) if f.estimate), default=0)
        for title, name in columns
    }
    notes = [f"n: {', '.join(f'{title} {n:,}' for title, n in sizes.items() if n)}."]
    for _, name in columns:
        own = quantity(name)
        floors = [f.estimate for f in evidence.named(own.baseline) if f.estimate]
        if floors:
            unit = " dB" if own.unit == "dB" else ""
            notes.append(
                f"{own.short} is to be held against {number(floors[0].value, own.unit)}{unit}: "
                f"{quantity(own.baseline).short}."
            )
    if any(figure.short for figure in evidence.figures):
        notes.append("* a short attacker: the figure is a lower bound of the leak.")
    failed = sorted({f"{f.name} under {f.condition.label}" for f in evidence.figures if f.failed})
    notes += [f"Failed: {', '.join(failed)}."] if failed else []
    return ["", *notes]
