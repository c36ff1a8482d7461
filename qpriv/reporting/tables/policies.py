"""Tables of the policies: what they answer, keep, leak and send; and of all that has no table."""

from collections.abc import Iterable, Sequence

from qpriv.metrics.answers import ACCURACY
from qpriv.quantity import Quantity

from ..claims import alpha_sweeps
from ..condition import Condition
from ..evidence import Evidence, Figure
from ..quantities import PARADIGM_QUANTITIES, POLICY_QUANTITIES, quantity
from .table import Table, build_row, build_table, settings_of, table_key


def policy_table(evidence: Evidence, dataset: str) -> Table | None:
    """Return utility and cost of each policy, or None where none was measured."""
    swept = [c for c in swept_conditions(evidence) if "alpha" in c.options]
    rest = [c for c in evidence.conditions if c not in swept]
    caption = f"Policies on {dataset or 'the data'}: what they answer, keep, leak and send"
    return _policies(evidence, rest, table_key("policies", dataset), caption)


def paradigm_table(evidence: Evidence, dataset: str) -> Table | None:
    """Return what each paradigm gives and costs, or None if there is only one."""
    if len({condition.paradigm for condition in evidence.conditions}) < 2:
        return None
    caption = "Ways to divide the work: what they answer, send and take"
    rest = [c for c in evidence.conditions if c not in swept_conditions(evidence)]
    together = sorted(rest, key=lambda c: (c.policy, c.paradigm != "centralized", c.paradigm))
    key = table_key("paradigms", dataset)
    return _policies(evidence, together, key, caption, PARADIGM_QUANTITIES)


def sweep_table(evidence: Evidence, dataset: str) -> Table | None:
    """Return the points of the sweeps of alpha, or None if there is none."""
    caption = "Sweep of alpha, the weight of utility, at beta 1: each row its own fine-tune"
    swept = swept_conditions(evidence)
    return _policies(evidence, swept, table_key("alpha-sweep", dataset), caption)


def swept_conditions(evidence: Evidence) -> list[Condition]:
    """Return the conditions that a sweep of alpha consists of, in its order."""
    return [c for sweep in alpha_sweeps(evidence).values() for c in sweep.values()]


def question_type_table(evidence: Evidence, dataset: str) -> Table | None:
    """Return accuracy by type of question, or None where it was not measured."""
    names = sorted({f.name for f in evidence.figures if f.name.startswith("accuracy/")})
    if not names:
        return None
    columns = tuple(quantity(name) for name in names)
    conditions = [c for c in evidence.conditions if evidence.figure(names[0], c)]
    rows = [
        build_row(c.label, "", (), [evidence.figure(name, c) for name in names]) for c in conditions
    ]
    return build_table(
        table_key("types", dataset), "Accuracy by type of question", "Policy", columns, rows
    )


def other_table(evidence: Evidence, tables: Iterable[Table]) -> Table | None:
    """Return all figures that no other table shows, one a row.

    Args:
        evidence: All figures.
        tables: What is shown besides.
    """
    shown = {identity for table in tables for identity in table.shown}
    figures = [f for f in evidence.figures if f.identity not in shown and not _is_twin(f.name)]
    rows = [
        build_row(f.name, f.condition.label, filter(None, (f.dataset, *settings_of([f]))), [f])
        for f in figures
    ]
    if not rows:
        return None
    value = (Quantity(name="value", title="Value", meaning=""),)
    return build_table("others", "Other figures of the runs", "Figure", value, rows)


def _policies(
    evidence: Evidence,
    conditions: Sequence[Condition],
    key: str,
    caption: str,
    quantities: tuple[Quantity, ...] = POLICY_QUANTITIES,
) -> Table | None:
    wanted = {each.name for each in quantities}
    figures = [f for f in evidence.figures if f.name in wanted and f.condition in conditions]
    names = {figure.name for figure in figures}
    columns = tuple(each for each in quantities if each.name in names)
    measured = {figure.condition for figure in figures}
    rows = [
        build_row(
            c.label,
            c.meaning,
            _split_of(evidence.figure(ACCURACY.name, c)),
            [evidence.figure(each.name, c) for each in columns],
        )
        for c in conditions
        if c in measured
    ]
    return build_table(key, caption, "Policy", columns, rows) if rows else None


def _split_of(accuracy: Figure | None) -> tuple[str, ...]:
    """Say on which data and split questions were answered."""
    return (f"accuracy on {accuracy.dataset}",) if accuracy and accuracy.dataset else ()


def _is_twin(name: str) -> bool:
    # `accuracy_<rule>` is `accuracy` under the name that papers compare
    return name.startswith("accuracy_") and "/" not in name
