"""DocVQA in the parquet files of its mirrors, with OCR inside where the mirror has it.

``lmms-lab/DocVQA`` and ``HuggingFaceM4/DocumentVQA`` come without words;
``pixparse/docvqa-single-page-questions`` carries them in the column ``ocr_results``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from qpriv.datasets.files import DataFile
from qpriv.datasets.groups import Groups
from qpriv.datasets.parquet import ParquetImage, iter_rows
from qpriv.datasets.parquet_cells import cell, open_parquet
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import VQASample
from qpriv.errors import DataError

from .ocr import parse_ocr_document
from .page import PageText
from .reading import Answers, answer_type, kept_records, question_types

OCR_COLUMN = "ocr_results"


class _Row(msgspec.Struct):
    questionId: str | int
    question: str | None
    question_types: list[str] | str | None = None
    docId: str | int | None = None
    ucsf_document_id: str | None = None
    ucsf_document_page_no: str | int | None = None
    answers: Answers = None


@dataclass(frozen=True, slots=True)
class ParquetText:
    """The words of a page in a cell of a parquet file."""

    file: DataFile
    group: int
    row: int

    def load(self) -> PageText:
        """Return the words.

        Raises:
            DataError: If the cell holds no OCR output.
        """
        where = f"{self.file.name}, row group {self.group}, row {self.row}"
        pages = parse_ocr_document(cell(self.file, self.group, self.row, OCR_COLUMN), where)
        if not pages:
            raise DataError("no page in the cell", where=where, remedy="take the next version")
        return pages[0]


def read_parquet(
    files: Sequence[DataFile], dataset: str, split: str, groups: Groups, report: DataReport
) -> list[VQASample]:
    """Return the samples of the parquet files of one split; count what is left out."""
    samples, kind = [], groups.extended(_Row)
    for file in files:
        with_text = OCR_COLUMN in open_parquet(file).schema_arrow.names
        rows = (
            ((group, number), row) for group, number, row in iter_rows(file, kind, report=report)
        )
        for (group, number), row, answers in kept_records(rows, report, split != "test"):
            text = ParquetText(file, group, number) if with_text else None
            image = ParquetImage(file, group, number)
            named = groups.of(row, f"{file.name}, row group {group}, row {number}")
            samples.append(_sample(row, answers, dataset, split, image, text, named))
    return samples


def _sample(
    row: _Row,
    answers: tuple[str, ...],
    dataset: str,
    split: str,
    image: ParquetImage,
    text: ParquetText | None,
    group: str | None,
) -> VQASample:
    number = row.questionId if row.docId is None else row.docId
    document = row.ucsf_document_id or str(number)
    page = f"{document}_{row.ucsf_document_page_no}" if row.ucsf_document_page_no else document
    return VQASample(
        dataset=dataset,
        split=split,
        qid=str(row.questionId),
        image_id=page,
        group_id=group or document,
        image=image,
        question=row.question or "",
        answer=answers[0] if answers else "",
        answers=answers,
        answer_type=answer_type(answers),
        meta={"question_type": question_types(row.question_types), "text": text},
    )
