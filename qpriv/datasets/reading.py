"""Steps that the readers of all sets share: the cap, answer types, empty gold answers."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from .folds import sample_by_group
from .groups import check_groups
from .report import DataReport
from .sample import AnswerType

T = TypeVar("T")

YES_NO = frozenset({"yes", "no"})


def draw(
    rows: Iterable[tuple[str, T]],
    report: DataReport,
    cap: int | None,
    seed: int,
    group_field: str | None = None,
) -> list[T]:
    """Return `sample_by_group` of the rows, and account for those beyond the cap.

    Raises:
        DataError: If no record has the ``group_field`` that was asked for.
    """
    found = 0

    def counted() -> Iterator[tuple[str, T]]:
        nonlocal found
        for found, row in enumerate(rows, start=1):
            yield row

    drawn = sample_by_group(counted(), cap, seed)
    check_groups(report, group_field)
    report.drop(f"beyond the cap of {cap}, drawn by image", found - len(drawn))
    return drawn


def has_gold(answer: str, report: DataReport) -> bool:
    """Return whether a gold answer says anything, and account for the row where it does not.

    An empty answer is in every prediction, so it must not reach training, the oracle or a score.
    """
    if answer.strip():
        return True
    report.empty_golds += 1
    report.drop("gold answer is empty")
    return False


def parse_answer_type(text: str, answer: str, report: DataReport) -> AnswerType:
    """Return an answer type as the release writes it, mended where it is misspelt."""
    tidy = text.strip().upper()
    if tidy != text:
        report.repaired["answer type with blanks or in lower case"] += 1
    if tidy in AnswerType.__members__:
        return AnswerType(tidy)
    report.repaired[f"answer type {text!r} inferred from the answer"] += 1
    return infer_answer_type(answer)


def infer_answer_type(answer: str) -> AnswerType:
    """Return CLOSED for yes and no, as mirrors without answer types are usually read."""
    return AnswerType.CLOSED if answer.strip().lower() in YES_NO else AnswerType.OPEN


def as_text(value: object, field: str, report: DataReport) -> str:
    """Return an id or answer as a string; numbers are counted as repaired."""
    if isinstance(value, str):
        return value
    report.repaired[f"{field} that is a number"] += 1
    return str(value)
