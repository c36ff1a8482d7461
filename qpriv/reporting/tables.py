"""Results as tables: what a row, a column and a cell say, for HTML and terminal alike."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qpriv.result import Scalar

from .claims.attacks import chance
from .condition import Condition
from .evidence import Evidence, Figure
from .numbers import MISSING, basis, interval, number
from .quantities import POLICY_QUANTITIES, Quantity, attack_title, quantity, reading_order


@dataclass(frozen=True)
class Cell:
    """One figure of a table.

    Args:
        text: The value, or why there is none.
        interval: The interval, or empty.
        basis: n and seeds, where they differ from the row's.
        trouble: Whether a probe failed here.
    """

    text: str
    interval: str = ""
    basis: str = ""
    trouble: bool = False


@dataclass(frozen=True)
class Row:
    """One row: a condition, what it rests on, and its figures.

    Args:
        header: Name of the row.
        details: Settings and basis, as short phrases.
        cells: One for each column.
        marks: Warnings such as ``short attacker``.
    """

    header: str
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
    """

    key: str
    caption: str
    head: str
    columns: tuple[Quantity, ...]
    rows: tuple[Row, ...]


def policy_table(evidence: Evidence, dataset: str) -> Table | None:
    """Return utility and cost of each policy, or None where no accuracy was measured."""
    names = {figure.name for figure in evidence.figures}
    columns = tuple(each for each in POLICY_QUANTITIES if each.name in names)
    measured = {figure.condition for figure in evidence.figures if figure.name in _POLICY_NAMES}
    rows = [
        _row(condition.label, (), [evidence.figure(each.name, condition) for each in columns])
        for condition in evidence.conditions
        if condition in measured
    ]
    if not rows:
        return None
    caption = f"Policies on {dataset or 'the data'}: what they answer, keep, leak and send"
    return Table(_key("policies", dataset), caption, "Policy", columns, tuple(rows))


def question_type_table(evidence: Evidence, dataset: str) -> Table | None:
    """Return accuracy by type of question, or None where it was not measured."""
    names = sorted({f.name for f in evidence.figures if f.name.startswith("accuracy/")})
    if not names:
        return None
    columns = tuple(quantity(name) for name in names)
    conditions = [c for c in evidence.conditions if evidence.figure(names[0], c)]
    rows = tuple(
        _row(condition.label, (), [evidence.figure(name, condition) for name in names])
        for condition in conditions
    )
    return Table(_key("types", dataset), "Accuracy by type of question", "Policy", columns, rows)


def attack_tables(evidence: Evidence, dataset: str) -> list[Table]:
    """Return one table for each attack: a row for each policy and setting of the attack."""
    attacks = sorted({f.name.split("/")[1] for f in evidence.figures if _is_attack(f.name)})
    return [_attack_table(evidence, attack, dataset) for attack in attacks]


def other_table(evidence: Evidence) -> Table | None:
    """Return all figures that have no table of their own, one a row."""
    figures = [f for f in evidence.figures if not _has_table(f.name)]
    rows = tuple(
        _row(figure.name, (figure.condition.label, *_settings(figure)), [figure])
        for figure in figures
    )
    if not rows:
        return None
    value = (Quantity("value", "Value"),)
    return Table("others", "Other figures of the runs", "Figure", value, rows)


def _attack_table(evidence: Evidence, attack: str, dataset: str) -> Table:
    figures = [f for f in evidence.figures if f.name.startswith(f"attack/{attack}/")]
    names = sorted({figure.name for figure in figures}, key=reading_order)
    rows = []
    for condition in evidence.conditions:
        own = [figure for figure in figures if figure.condition == condition]
        for setting in _whole_settings(own):
            cells = [_most_specific(own, name, setting) for name in names]
            first = next(figure for figure in own if set(figure.setting) == setting)
            rows.append(_row(condition.label, _settings(first), cells))
    columns = tuple(quantity(name) for name in names)
    caption = f"{attack_title(attack)} on {dataset or 'the data'}"
    return Table(_key(f"attack-{attack}", dataset), caption, "Policy", columns, tuple(rows))


def _whole_settings(figures: Sequence[Figure]) -> list[set[tuple[str, Scalar]]]:
    """Return the settings that are not part of a fuller one: a floor has no row of its own."""
    settings = [set(setting) for setting in sorted({f.setting for f in figures}, key=str)]
    return [each for each in settings if not any(each < other for other in settings)]


def _most_specific(
    figures: Sequence[Figure], name: str, setting: set[tuple[str, Scalar]]
) -> Figure | None:
    fitting = [f for f in figures if f.name == name and set(f.setting) <= setting]
    return max(fitting, key=lambda figure: len(figure.setting), default=None)


def _row(header: str, details: Iterable[str], figures: Sequence[Figure | None]) -> Row:
    """Build a row; what all cells rest on stands once beside the header."""
    estimates = [figure.estimate for figure in figures if figure]
    bases = {basis(estimate) for estimate in estimates if estimate}
    common = next(iter(bases)) if len(bases) == 1 else ""
    cells = tuple(_cell(figure, own_basis=not common) for figure in figures)
    return Row(header, tuple(filter(None, (*details, common))), cells, _marks(figures))


def _cell(figure: Figure | None, *, own_basis: bool) -> Cell:
    if figure is None:
        return Cell("not measured")
    estimate = figure.estimate
    if estimate is None:
        example = figure.example
        text = MISSING if example.status in ("ok", "not applicable") else example.status
        return Cell(text, trouble=bool(figure.failed))
    unit = figure.example.unit
    shown = number(estimate.value, unit) + (" dB" if unit == "dB" else "")
    note = basis(estimate) if own_basis else ""
    return Cell(shown, interval(estimate.interval, unit), note, trouble=bool(figure.failed))


def _marks(figures: Sequence[Figure | None]) -> tuple[str, ...]:
    """Return the warnings of a row: short attackers, failed probes with their note."""
    present = [figure for figure in figures if figure]
    marks = ["short attacker"] if any(figure.short for figure in present) else []
    for figure in present:
        for result in figure.failed:
            note = f": {result.note}" if result.note else ""
            marks.append(f"{result.status}{note}")
    notes = {r.note for f in present for r in f.by_seed.values() if r.note and r.status == "ok"}
    return tuple(dict.fromkeys([*marks, *sorted(notes - set(marks))]))


def _settings(figure: Figure) -> tuple[str, ...]:
    """Return the attack's settings as phrases, with the chance level where there is a gallery."""
    attack = figure.example.attack
    shown = [f"{key.replace('_', ' ')}: {value}" for key, value in attack.items() if key != "short"]
    by_chance = chance(figure.example)
    return (*shown, *([f"chance: {by_chance:.3f}"] if by_chance else []))


def _is_attack(name: str) -> bool:
    return name.startswith("attack/") and name.count("/") >= 2


def _has_table(name: str) -> bool:
    return name in _POLICY_NAMES or name.startswith("accuracy/") or _is_attack(name)


def _key(name: str, dataset: str) -> str:
    return "-".join([name, *("".join(c if c.isalnum() else "-" for c in dataset).split())]).lower()


def headline(conditions: Sequence[Condition]) -> list[Condition]:
    """Return the few conditions that figures and summary speak of.

    No pruning, half the tokens by each ranking, and the dynamic threshold.
    """
    chosen = [
        c for c in conditions
        if c.family in ("off", "dtp") or (c.family == "fixed" and c.ratio == 0.5)
    ]  # fmt: skip
    plain = [c for c in chosen if "alpha" not in c.options]
    return (plain or chosen or list(conditions))[:6]


_POLICY_NAMES = {each.name for each in POLICY_QUANTITIES}
