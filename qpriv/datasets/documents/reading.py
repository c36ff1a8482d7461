"""What the document sets share: records with checked fields become samples, the rest is counted."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from qpriv.datasets.files import DataFile, read_data
from qpriv.datasets.image_index import ImageIndex
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import AnswerType, ImageSource, MissingImage, VQASample
from qpriv.datasets.tree import FileTree
from qpriv.errors import DataError

from .ocr import OCRFile
from .page import TextSource

Record = Mapping[str, Any]
Field = Any  # JSON says nothing about types before it is read


def read_records(file: DataFile) -> list[Record]:
    """Return the records of a question file: a list, or the list under ``data``.

    Raises:
        DataError: If it is not JSON of that form.
    """
    try:
        content = json.loads(read_data(file))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"not JSON: {error}", where=file.name, remedy="download the file again"
        ) from error
    records = content.get("data") if isinstance(content, Mapping) else content
    if not isinstance(records, list) or not all(isinstance(r, Mapping) for r in records):
        raise DataError(
            "no list of questions under `data`",
            where=file.name,
            remedy="this reader wants the release's question file",
        )
    return records


def required(record: Record, name: str, where: str) -> Field:
    """Return a field that must be there.

    Raises:
        DataError: If it is not; names the fields that are.
    """
    if name not in record:
        raise DataError(
            f"a record without {name!r}, it has {', '.join(map(repr, record))}",
            where=where,
            remedy="use the question file of the release",
        )
    return record[name]


def answers_of(record: Record) -> tuple[str, ...]:
    """Return the accepted answers: a list, one string (PFL-DocVQA), or nothing (test splits).

    >>> answers_of({"answers": "Acme"}), answers_of({"answers": None})
    (('Acme',), ())
    """
    answers = record.get("answers")
    if isinstance(answers, str):
        return (answers,)
    return tuple(str(answer) for answer in answers or () if str(answer).strip())


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
    records: Iterable[Record], report: DataReport, answered: bool
) -> Iterator[tuple[Record, tuple[str, ...]]]:
    """Yield the records that can become samples, with their answers; count the others.

    Args:
        records: The records of the split.
        report: Where they are counted.
        answered: Whether every question of this split has an answer.
    """
    for record in records:
        report.read += 1
        answers = answers_of(record)
        if not str(record.get("question", "")).strip():
            report.drop("no question")
        elif answered and not answers:
            report.empty_golds += 1
            report.drop("no gold answer")
        else:
            yield record, answers


def finished(
    samples: list[VQASample], report: DataReport, files: Iterable[str]
) -> tuple[list[VQASample], DataReport]:
    """Return samples and the report, with its counts filled in."""
    report.files = tuple(files)
    report.count(samples)
    missing = {s.image_id for s in samples if isinstance(s.image, MissingImage)}
    report.missing_images = len(missing)
    without = sum(sample.meta.get("text") is None for sample in samples)
    if without:
        report.notes.append(f"{without} questions about pages without OCR")
    return samples, report
