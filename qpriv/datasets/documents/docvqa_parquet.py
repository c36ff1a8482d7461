"""DocVQA in the parquet files of its mirrors, with OCR inside where the mirror has it.

``lmms-lab/DocVQA`` and ``HuggingFaceM4/DocumentVQA`` come without words;
``pixparse/docvqa-single-page-questions`` carries them in the column ``ocr_results``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import pyarrow as pa

from qpriv.datasets.files import DataFile
from qpriv.datasets.parquet import ParquetImage, iter_rows, open_parquet
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import VQASample

from .ocr import parse_ocr_document
from .page import PageText
from .reading import answer_type

OCR_COLUMN = "ocr_results"


class _Row(msgspec.Struct):
    questionId: str | int
    question: str
    question_types: list[str] | None = None
    docId: str | int | None = None
    ucsf_document_id: str | None = None
    ucsf_document_page_no: str | int | None = None
    answers: list[str] | None = None


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
        cell = _column(self.file, self.group)[self.row].as_py()
        return parse_ocr_document(cell, where)[0]


@lru_cache(maxsize=2)
def _column(file: DataFile, group: int) -> pa.ChunkedArray:
    return open_parquet(file).read_row_group(group, columns=[OCR_COLUMN]).column(0)


def read_parquet(
    files: Sequence[DataFile], dataset: str, split: str, report: DataReport
) -> list[VQASample]:
    """Return the samples of the parquet files of one split; count what is left out."""
    samples = []
    for file in files:
        with_text = OCR_COLUMN in open_parquet(file).schema_arrow.names
        for group, number, row in iter_rows(file, _Row):
            report.read += 1
            answers = tuple(answer for answer in row.answers or () if answer.strip())
            if split != "test" and not answers:
                report.empty_golds += 1
                report.drop("no gold answer")
                continue
            text = ParquetText(file, group, number) if with_text else None
            image = ParquetImage(file, group, number)
            samples.append(_sample(row, answers, dataset, split, image, text))
    return samples


def _sample(
    row: _Row,
    answers: tuple[str, ...],
    dataset: str,
    split: str,
    image: ParquetImage,
    text: ParquetText | None,
) -> VQASample:
    document = str(row.ucsf_document_id or row.docId or row.questionId)
    page = f"{document}_{row.ucsf_document_page_no}" if row.ucsf_document_page_no else document
    return VQASample(
        dataset=dataset,
        split=split,
        qid=str(row.questionId),
        image_id=page,
        group_id=document,
        image=image,
        question=row.question,
        answer=answers[0] if answers else "",
        answers=answers,
        answer_type=answer_type(answers),
        meta={"question_type": "+".join(row.question_types or ()) or None, "text": text},
    )
