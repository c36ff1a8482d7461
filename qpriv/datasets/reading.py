"""Steps that the readers of all sets share: the cap, answer types, empty gold answers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from qpriv.errors import DataError

from .folds import sample_by_group
from .groups import check_groups
from .report import DataReport
from .sample import AnswerType, VQASample

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


def named_apart(
    rows: Iterable[tuple[str, VQASample]], report: DataReport
) -> Iterator[tuple[str, VQASample]]:
    """Yield the rows, those whose id an earlier one has under an id of their own.

    A key names one sample in caches, draws and predictions; in LLaVA's own files an id is that of
    a picture, which has several records.
    """
    seen: set[str] = set()
    copies: Counter[str] = Counter()
    for group, sample in rows:
        qid = sample.qid
        while qid in seen:
            copies[sample.qid] += 1
            qid = f"{sample.qid}~{copies[sample.qid] + 1}"
        seen.add(qid)
        if qid != sample.qid:
            report.renamed += 1
            sample = replace(sample, qid=qid)
        yield group, sample


def once(rows: Sequence[T], id_of: Callable[[T], str], report: DataReport) -> list[T]:
    """Return the rows with an id that no earlier one has; by their ids servers know questions.

    Raises:
        DataError: If an id stands twice and the report stops at bad rows.
    """
    first: dict[str, T] = {}
    for row in rows:
        if first.setdefault(qid := id_of(row), row) is not row:
            report.refuse(
                DataError(
                    "an id that an earlier question has",
                    where=f"{', '.join(report.files)}, question {qid}",
                    remedy="ids are unique in the release: take its files again",
                )
            )
    return list(first.values())


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
