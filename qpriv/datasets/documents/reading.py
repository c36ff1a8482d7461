"""Shared steps of the document sets: records become samples, and dropped records are counted."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from qpriv.datasets.groups import check_groups
from qpriv.datasets.image_index import ImageIndex
from qpriv.datasets.reading import as_text
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import AnswerType, ImageSource, VQASample
from qpriv.datasets.tree import FileTree

from .ocr import OCRFile
from .page import TextSource

Answers = list[str | int | float | None] | str | None
"""Accepted answers as releases write them: a list, one string (PFL-DocVQA), or nothing (test)."""


class Asked(Protocol):
    """A record of any release."""

    @property
    def question(self) -> str | None:
        """Return the question."""
        ...

    @property
    def answers(self) -> Answers:
        """Return the accepted answers."""
        ...


Record = TypeVar("Record", bound=Asked)
Place = TypeVar("Place")


def accepted(answers: Answers, report: DataReport) -> tuple[str, ...]:
    """Return the accepted answers that say something; numbers and nulls are counted as repaired.

    >>> report = DataReport("DocVQA", "train")
    >>> accepted("Acme", report), accepted([1993, None, " "], report), accepted(None, report)
    (('Acme',), ('1993',), ())
    >>> sorted(report.repaired)
    ['answer that is a number', 'answer that is null']
    """
    given = [answers] if isinstance(answers, str) else answers or []
    if None in given:
        report.repaired["answer that is null"] += 1
    texts = (as_text(answer, "answer", report) for answer in given if answer is not None)
    return tuple(text for text in texts if text.strip())


def answer_type(answers: Sequence[str]) -> AnswerType:
    """Return whether the answer is yes or no, or free text."""
    closed = bool(answers) and answers[0].strip().lower() in {"yes", "no"}
    return AnswerType.CLOSED if closed else AnswerType.OPEN


class PageFiles:
    """Images and OCR files of a release by the name of the page.

    Args:
        tree: The release.
    """

    def __init__(self, tree: FileTree) -> None:
        self.tree = tree
        self.images: ImageIndex = tree.images(any_ending=True)

    def image(self, name: str, where: str) -> ImageSource:
        """Return an image by its name, with or without folder and ending."""
        return self.images.source(name, where)

    def text(self, page: str) -> TextSource | None:
        """Return the OCR of a page by the page's name, or None where there is none."""
        file = self.images.text(f"{page}.json") or self.images.text(f"{page}.json.gz")
        return None if file is None else OCRFile(file)


def kept_records(
    records: Iterable[tuple[Place, Record]], report: DataReport, answered: bool
) -> Iterator[tuple[Place, Record, tuple[str, ...]]]:
    """Yield the records that can become samples, with their place and answers; count the others.

    Args:
        records: The records of the split, each with its place in the file.
        report: Where they are counted.
        answered: Whether every question of this split has an answer.
    """
    for place, record in records:
        report.read += 1
        answers = accepted(record.answers, report)
        if not (record.question or "").strip():
            report.drop("no question")
        elif answered and not answers:
            report.empty_golds += 1
            report.drop("no gold answer")
        else:
            yield place, record, answers


def question_types(kinds: list[str] | str | None) -> str | None:
    """Return the types of a question as one string, None where there are none.

    >>> question_types(["form", "table/list"]), question_types("form"), question_types([])
    ('form+table/list', 'form', None)
    """
    return (kinds if isinstance(kinds, str) else "+".join(kinds or ())) or None


def _told_apart(samples: list[VQASample], report: DataReport) -> list[VQASample]:
    """Return the samples; one of an earlier one's key that is no repetition of it gets another."""
    first: dict[str, VQASample] = {}
    for number, sample in enumerate(samples):
        held, copies = first.setdefault(sample.key, sample), 1
        while _content(held) != _content(sample):
            copies += 1
            sample = replace(samples[number], qid=f"{samples[number].qid}~{copies}")
            held = first.setdefault(sample.key, sample)
        if copies > 1:
            report.renamed += 1
        samples[number] = sample
    return samples


def _content(sample: VQASample) -> tuple[object, ...]:
    return sample.image_id, sample.question, sample.answers


def finished(
    samples: list[VQASample],
    report: DataReport,
    files: Iterable[str],
    group_field: str | None = None,
) -> tuple[list[VQASample], DataReport]:
    """Return samples and the report, with its counts filled in.

    Args:
        samples: The samples of the split.
        report: Its account.
        files: Names of the files that were read.
        group_field: The field that was asked to name the groups.

    Raises:
        DataError: If no record has the ``group_field``.
    """
    samples = _told_apart(samples, report)
    report.files = tuple(files)
    check_groups(report, group_field)
    report.count(samples)
    without = sum(sample.meta.get("text") is None for sample in samples)
    if without:
        report.notes.append(f"{without} questions about pages without OCR")
    return samples, report
