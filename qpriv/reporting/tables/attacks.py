"""Tables of the attacks: each figure beside its floor, under the settings it was measured with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from qpriv.result import Scalar

from ..evidence import Evidence, Figure
from ..quantities import attack_title, quantity, reading_order
from ..strongest import baseline
from .table import Table, build_row, build_table, settings_of, table_key


@dataclass(frozen=True)
class AttackTables:
    """An attack's leading figures, and all the others or None."""

    main: Table
    more: Table | None


def attack_tables(evidence: Evidence, dataset: str) -> list[AttackTables]:
    """Return the tables of each attack: a row for each policy and setting of the attack."""
    attacks = sorted(
        {f.name.split("/")[1] for f in evidence.figures if f.name.startswith("attack/")}
    )
    return [_attack_tables(evidence, attack, dataset) for attack in attacks]


def _attack_tables(evidence: Evidence, attack: str, dataset: str) -> AttackTables:
    figures = [f for f in evidence.figures if f.name.startswith(f"attack/{attack}/")]
    names = sorted({figure.name for figure in figures}, key=reading_order)
    leading = [name for name in names if quantity(name).leading] or names
    title = f"{attack_title(attack)} on {dataset or 'the data'}"
    key = table_key(f"attack-{attack}", dataset)
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
        own = [f for f in figures if f.condition == condition]
        broken = [f for f in failures if f.condition == condition]
        if not own and not broken:
            continue
        for setting in _whole_settings(own) or [set()]:
            cells = [_most_specific(own, name, setting) for name in names]
            details = settings_of([f for f in own if set(f.setting) <= setting])
            row = build_row(condition.label, "", details, cells, broken)
            rows.append(replace(row, marks=(*row.marks, *_unheld(evidence, cells))))
    return build_table(key, caption, "Policy", tuple(quantity(name) for name in names), rows)


def _unheld(evidence: Evidence, cells: Sequence[Figure | None]) -> Iterator[str]:
    """Yield what the leading figures of a row should be held against and was not measured."""
    figures = [each for each in cells if each and each.estimate and quantity(each.name).leading]
    floors = {quantity(each.name).baseline: baseline(evidence, each) for each in figures}
    for name, floor in floors.items():
        if name and (floor is None or floor.estimate is None):
            yield f"nothing to hold it against: no {quantity(name).short}"


def _whole_settings(figures: Sequence[Figure]) -> list[set[tuple[str, Scalar]]]:
    """Return the settings that are not part of a fuller one: a floor has no row of its own."""
    settings = [set(setting) for setting in sorted({f.setting for f in figures}, key=str)]
    return [each for each in settings if not any(each < other for other in settings)]


def _most_specific(
    figures: Sequence[Figure], name: str, setting: set[tuple[str, Scalar]]
) -> Figure | None:
    fitting = [f for f in figures if f.name == name and set(f.setting) <= setting]
    return max(fitting, key=lambda f: (len(f.setting), f.recency), default=None)
