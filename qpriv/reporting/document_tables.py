"""Tables of a document study, for a terminal and for the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qpriv.result import Result, Scalar

MAIN = {
    "anls": "ANLS",
    "extraction/extractable": "E",
    "extraction/generalised": "G",
    "extraction/generalised_pii": "personal in G",
    "extraction/memorised": "M",
    "extraction/memorised_pii": "personal in M",
    "extraction/memorised_unique_pii": "unique and personal in M",
}
"""Columns of the main table, by the name of their figure."""
_NAMING = {"model", "resolution", "stopping", "baselines"}


@dataclass(frozen=True)
class DocumentTable:
    """A table: a row a model, a column a figure.

    Args:
        key: Identifier within the page.
        caption: What it shows.
        columns: Titles of the columns.
        rows: For each row its header and cells; an empty cell was not measured.
    """

    key: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def document_tables(results: Sequence[Result]) -> list[DocumentTable]:
    """Return the tables that have rows, in the order of the page."""
    tables = [
        main_table(results),
        _by(results, "kinds", "M by kind of information", "extraction/memorised", "kind"),
        _by(results, "repetitions", "M by repetitions in training", "extraction/memorised",
            "repetition"),
        _by(results, "contexts", "M by what the attacker shows and asks", "extraction/memorised",
            "context"),
        _by(results, "again", "Canaries of M that also come out there",
            "extraction/memorised_and_said", "context"),
        _by(results, "decoding", "M by decoding", "extraction/memorised", "decoding"),
        _plain(results, "changes", "What a defence changes, question by question",
               {"anls_change": "ANLS", "extraction/memorised_change": "M"}),
        _plain(results, "utility", "Refusals on questions that have an answer, and exact matches",
               {"extraction/false_abstention": "false abstentions", "exact_match": "exact match",
                "extraction/whole_page": "canaries on whole pages"}),
        _plain(results, "privacy", "Differential privacy of documents",
               {"privacy/epsilon": "epsilon", "privacy/noise": "noise over clipping norm"}),
        _by(results, "membership", "Which documents were trained on: AUC by method; of models "
            "that saw none of them, .5 is right", "attack/document_membership/auc", "method"),
    ]  # fmt: skip
    return [table for table in tables if table.rows]


def main_table(results: Sequence[Result]) -> DocumentTable:
    """Return the sizes of E, G and M beside ANLS."""
    return _plain(results, "sizes", "Answers that come out of erased pages", MAIN)


def table(results: Sequence[Result]) -> str:
    """Return the main figures as a Markdown table, one row a trained model."""
    main = main_table(results)
    lines = [" | ".join(("model", *main.columns)), " | ".join("---" for _ in ("", *main.columns))]
    lines += [" | ".join((header, *cells)) for header, cells in main.rows]
    return "\n".join(f"| {line} |" for line in lines)


def _plain(
    results: Sequence[Result], key: str, caption: str, columns: dict[str, str]
) -> DocumentTable:
    """Return the table of figures that no setting splits further."""
    chosen = [r for r in results if r.name in columns and not set(r.attack) - _NAMING - _BUDGET]
    return _table(key, caption, chosen, columns, lambda result: result.name)


_BUDGET = {"delta", "protected"}


def _by(
    results: Sequence[Result], key: str, caption: str, name: str, setting: str
) -> DocumentTable:
    """Return the table of one figure with a column for each value of a setting."""
    chosen = [r for r in results if r.name == name and setting in r.attack]
    values = sorted({r.attack[setting] for r in chosen}, key=_order)
    columns = {str(value): str(value) for value in values}
    return _table(key, caption, chosen, columns, lambda result: str(result.attack[setting]))


def _order(value: Scalar) -> tuple[bool, float, str]:
    number = float(value) if isinstance(value, int | float) else 0.0
    return isinstance(value, str), number, str(value)


def _table(
    key: str,
    caption: str,
    results: Sequence[Result],
    columns: dict[str, str],
    column_of: Callable[[Result], str],
) -> DocumentTable:
    rows: dict[str, dict[str, str]] = {}
    for result in results:
        rows.setdefault(_header(result), {})[column_of(result)] = cell(result)
    lines = tuple(
        (header, tuple(found.get(column, "") for column in columns))
        for header, found in rows.items()
    )
    return DocumentTable(key, caption, tuple(columns.values()), lines)


def _header(result: Result) -> str:
    """Return the name of a row: model, resolution, seed, and what else tells runs apart."""
    parts = [f"{result.attack['model']} at {result.attack['resolution']}", f"seed {result.seed}"]
    if "stopping" in result.attack:
        parts.append(str(result.attack["stopping"]))
    if result.defence in ("ITP", "PR", "AR"):
        parts.append(f"under {result.defence}")
    return ", ".join(parts)


def cell(result: Result) -> str:
    """Return a figure with its interval.

    >>> cell(Result(name="anls", value=0.5, n=9, ci=(0.4, 0.6)))
    '0.500 [0.400, 0.600]'
    """
    if result.value is None:
        return result.note or result.status
    digits = 0 if result.unit else 3
    ends = "" if result.ci is None else " [{:.{d}f}, {:.{d}f}]".format(*result.ci, d=digits)
    return f"{result.value:.{digits}f}{ends}"
