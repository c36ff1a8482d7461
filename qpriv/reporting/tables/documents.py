"""Tables of document models: what they memorised, and by what it comes out."""

from collections.abc import Sequence

from qpriv.attacks.extraction.halves import QUANTITIES as SCORES
from qpriv.attacks.extraction.memory import CHANGES, PRIVACY, SIZES, UTILITY
from qpriv.key import Scalar
from qpriv.quantity import Quantity

from ..evidence import Evidence, Figure
from .table import Table, build_row, build_table, table_key

_SPLIT_BY = (
    ("kind", "extraction/memorised", "M by kind of information"),
    ("repetition", "extraction/memorised", "M by repetitions in training"),
    ("context", "extraction/memorised", "M by what the attacker shows and asks"),
    ("context", "extraction/memorised_and_said", "Canaries of M that also come out there"),
    ("decoding", "extraction/memorised", "M by decoding"),
)
_OF_MODEL = frozenset({"model", "resolution", "stopping", "baselines"})
"""Settings that name the model, as every figure of it does."""


def document_tables(evidence: Evidence, dataset: str) -> list[Table]:
    """Return the tables of document models that have rows; none without such models."""
    where = f" ({dataset})" if dataset else ""
    plain = (
        ("sizes", f"Answers that come out of erased pages{where}", SIZES),
        ("changes", f"What a defence changes{where}", CHANGES),
        ("document-utility", f"Refusals and exact matches{where}", UTILITY),
        ("document-privacy", f"Differential privacy of documents{where}", PRIVACY),
    )
    if not any(figure.name.startswith("extraction/") for figure in evidence.figures):
        return []
    tables = [_plain(evidence, table_key(key, dataset), title, own) for key, title, own in plain]
    tables += [
        _split(evidence, table_key(f"{name.rpartition('/')[2]}-{part}", dataset), title, name, part)
        for part, name, title in _SPLIT_BY
    ]
    tables.append(_scores(evidence, table_key("document-scores", dataset)))
    return [table for table in tables if table.rows]


def _plain(evidence: Evidence, key: str, caption: str, columns: Sequence[Quantity]) -> Table:
    """Return the table of figures that no setting but the model's splits."""
    rows = []
    for condition in evidence.conditions:
        cells = [
            next(
                (f for f in evidence.named(each.name) if f.condition == condition and _whole(f)),
                None,
            )
            for each in columns
        ]
        if any(cells):
            rows.append(build_row(condition.label, "", (), cells))
    present = tuple(columns)
    return build_table(key, caption, "Model", present, rows)


def _split(evidence: Evidence, key: str, caption: str, name: str, part: str) -> Table:
    """Return the table of one figure, with a column for each value of a setting."""
    figures = [f for f in evidence.named(name) if part in dict(f.setting)]
    values = sorted({dict(f.setting)[part] for f in figures}, key=_order)
    rows = []
    for condition in evidence.conditions:
        own = {dict(f.setting)[part]: f for f in figures if f.condition == condition}
        if own:
            rows.append(build_row(condition.label, "", (), [own.get(value) for value in values]))
    columns = tuple(
        Quantity(name=f"{name} {value}", title=str(value), meaning="") for value in values
    )
    return build_table(key, caption, "Model", columns, rows)


def _scores(evidence: Evidence, key: str) -> Table:
    """Return the scores of canaries over halves: a row for erased and one for whole pages."""
    rows = []
    for condition in evidence.conditions:
        own = [f for each in SCORES for f in evidence.named(each.name) if f.condition == condition]
        for page in sorted(
            {str(dict(f.setting)["page"]) for f in own if "page" in dict(f.setting)}
        ):
            here = [f for f in own if dict(f.setting).get("page") == page]
            cells = [next((f for f in here if f.name == each.name), None) for each in SCORES]
            splits = {dict(f.setting).get("splits") for f in here}
            told = [f"{page} pages", *(f"{number} trainings" for number in splits)]
            rows.append(build_row(condition.label, "", told, cells))
    return build_table(key, "Canaries over trainings on halves of them", "Model", SCORES, rows)


def _whole(figure: Figure) -> bool:
    return {name for name, _ in figure.setting} <= _OF_MODEL


def _order(value: Scalar) -> tuple[bool, float, str]:
    number = float(value) if isinstance(value, int | float) else 0.0
    return isinstance(value, str), number, str(value)
