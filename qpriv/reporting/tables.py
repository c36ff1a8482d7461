"""Results as tables: what a row, a column and a cell say, for HTML and terminal alike."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from qpriv.result import Scalar

from .claims import alpha_sweeps
from .claims.attacks import chance
from .condition import Condition
from .evidence import Evidence, Figure
from .numbers import MISSING, basis, interval, number
from .quantities import POLICY_QUANTITIES, Quantity, attack_title, quantity, reading_order


@dataclass(frozen=True)
class Cell:
    """One figure of a table.

    Args:
        text: The value, or why there is none; empty where it was not measured.
        interval: The interval, or empty.
        basis: n and seeds, where they differ from the row's, or why there is no value.
        trouble: Whether a probe failed here.
    """

    text: str = ""
    interval: str = ""
    basis: str = ""
    trouble: bool = False


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


@dataclass(frozen=True)
class AttackTables:
    """An attack's leading figures, and all the others or None."""

    main: Table
    more: Table | None


def policy_table(evidence: Evidence, dataset: str) -> Table | None:
    """Return utility and cost of each policy, or None where none was measured."""
    swept = [c for c in swept_conditions(evidence) if "alpha" in c.options]
    rest = [c for c in evidence.conditions if c not in swept]
    caption = f"Policies on {dataset or 'the data'}: what they answer, keep, leak and send"
    return _policies(evidence, rest, _key("policies", dataset), caption)


def sweep_table(evidence: Evidence, dataset: str) -> Table | None:
    """Return the points of the sweeps of alpha, or None where there is none."""
    caption = "Sweep of alpha, the weight of utility, at beta 1: each row its own fine-tune"
    swept = swept_conditions(evidence)
    return _policies(evidence, swept, _key("alpha-sweep", dataset), caption)


def swept_conditions(evidence: Evidence) -> list[Condition]:
    """Return the conditions that a sweep of alpha consists of, in its order."""
    return [c for sweep in alpha_sweeps(evidence).values() for c in sweep.values()]


def _policies(
    evidence: Evidence, conditions: Sequence[Condition], key: str, caption: str
) -> Table | None:
    figures = [f for f in evidence.figures if f.name in _POLICY_NAMES and f.condition in conditions]
    names = {figure.name for figure in figures}
    columns = tuple(each for each in POLICY_QUANTITIES if each.name in names)
    measured = {figure.condition for figure in figures}
    rows = [
        _row(c.label, c.meaning, (), [evidence.figure(each.name, c) for each in columns])
        for c in conditions
        if c in measured
    ]
    return _table(key, caption, "Policy", columns, rows) if rows else None


def question_type_table(evidence: Evidence, dataset: str) -> Table | None:
    """Return accuracy by type of question, or None where it was not measured."""
    names = sorted({f.name for f in evidence.figures if f.name.startswith("accuracy/")})
    if not names:
        return None
    columns = tuple(quantity(name) for name in names)
    conditions = [c for c in evidence.conditions if evidence.figure(names[0], c)]
    rows = [_row(c.label, "", (), [evidence.figure(name, c) for name in names]) for c in conditions]
    return _table(_key("types", dataset), "Accuracy by type of question", "Policy", columns, rows)


def attack_tables(evidence: Evidence, dataset: str) -> list[AttackTables]:
    """Return the tables of each attack: a row for each policy and setting of the attack."""
    attacks = sorted({f.name.split("/")[1] for f in evidence.figures if _is_attack(f.name)})
    return [_attack_tables(evidence, attack, dataset) for attack in attacks]


def other_table(evidence: Evidence) -> Table | None:
    """Return all figures that have no table of their own, one a row."""
    figures = [f for f in evidence.figures if not _has_table(f.name)]
    rows = [_row(f.name, f.condition.label, _settings([f]), [f]) for f in figures]
    if not rows:
        return None
    value = (Quantity("value", "Value"),)
    return _table("others", "Other figures of the runs", "Figure", value, rows)


def _attack_tables(evidence: Evidence, attack: str, dataset: str) -> AttackTables:
    figures = [f for f in evidence.figures if f.name.startswith(f"attack/{attack}/")]
    names = sorted({figure.name for figure in figures}, key=reading_order)
    leading = [name for name in names if quantity(name).leading] or names
    title = f"{attack_title(attack)} on {dataset or 'the data'}"
    key = _key(f"attack-{attack}", dataset)
    main = _attack_table(evidence, attack, leading, key, title)
    rest = [name for name in names if name not in leading]
    more = _attack_table(evidence, attack, rest, f"{key}-more", f"{title}: all other figures")
    return AttackTables(main, more if rest else None)


def _attack_table(
    evidence: Evidence, attack: str, names: Sequence[str], key: str, caption: str
) -> Table:
    failures = evidence.named(f"attack/{attack}")
    figures = [f for f in evidence.figures if f.name.startswith(f"attack/{attack}/")]
    rows = []
    for condition in evidence.conditions:
        own = [f for f in (*figures, *failures) if f.condition == condition]
        broken = [f for f in failures if f.condition == condition]
        for setting in _whole_settings(own):
            cells = [_most_specific(own, name, setting) for name in names]
            details = _settings([f for f in own if set(f.setting) <= setting])
            rows.append(_row(condition.label, "", details, cells, broken))
    return _table(key, caption, "Policy", tuple(quantity(name) for name in names), rows)


def _whole_settings(figures: Sequence[Figure]) -> list[set[tuple[str, Scalar]]]:
    """Return the settings that are not part of a fuller one: a floor has no row of its own."""
    settings = [set(setting) for setting in sorted({f.setting for f in figures}, key=str)]
    return [each for each in settings if not any(each < other for other in settings)]


def _most_specific(
    figures: Sequence[Figure], name: str, setting: set[tuple[str, Scalar]]
) -> Figure | None:
    fitting = [f for f in figures if f.name == name and set(f.setting) <= setting]
    return max(fitting, key=lambda figure: len(figure.setting), default=None)


def _table(
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


def _shared(phrases: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    first = phrases[0] if phrases else ()
    return tuple(each for each in first if all(each in others for others in phrases))


def _row(
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
        return Cell(text, basis=example.note if does_not_apply else "", trouble=not does_not_apply)
    ends = interval(estimate.interval, example.unit)
    by_chance = chance(example)
    notes = [basis(estimate)] if own_basis else []
    notes += [f"chance {number(by_chance)}"] if by_chance else []
    note = ", ".join(notes)
    return Cell(number(estimate.value, example.unit), ends, note, trouble=bool(figure.failed))


def _marks(figures: Sequence[Figure | None]) -> tuple[str, ...]:
    """Return the warnings of a row: short attackers, failed probes with their note."""
    present = [figure for figure in figures if figure]
    marks = ["short attacker"] if any(figure.short for figure in present) else []
    for result in (result for figure in present for result in figure.failed):
        when = "" if result.epoch is None else f" at epoch {result.epoch}"
        marks.append(f"{result.status}{when}" + (f": {result.note}" if result.note else ""))
    texts = [r.note for f in present for r in f.by_seed.values() if r.status == "ok"]
    notes = {part for text in texts for part in text.split("; ") if part}
    return tuple(dict.fromkeys([*marks, *sorted(notes)]))


def _settings(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Return the settings of an attack as phrases; chance stands beside its figure."""
    attack = {k: v for figure in figures for k, v in figure.example.attack.items()}
    words = {True: "yes", False: "no"}
    return tuple(
        f"{key.replace('_', ' ')}: {words[value] if isinstance(value, bool) else value}"
        for key, value in attack.items()
        if key not in ("short", "chance")
    )


def _is_attack(name: str) -> bool:
    return name.startswith("attack/")


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
