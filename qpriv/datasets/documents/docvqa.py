"""DocVQA: questions about single pages, as released on the Robust Reading portal.

Mathew, Karatzas and Jawahar 2021 (arXiv 2007.00398). The release needs registration at
https://rrc.cvc.uab.es/?ch=17; 39,463 / 5,349 / 5,188 questions on 10,194 / 1,286 / 1,287 pages.
"""

from pathlib import Path
from typing import Literal

import msgspec

from qpriv.datasets.base import VQADataset
from qpriv.datasets.files import DataFile
from qpriv.datasets.groups import Groups
from qpriv.datasets.parquet import mirror_files
from qpriv.datasets.records import iter_records
from qpriv.datasets.report import DataReport, OnBadRow
from qpriv.datasets.sample import VQASample
from qpriv.datasets.tree import FileTree

from .docvqa_parquet import read_parquet
from .reading import Answers, PageFiles, answer_type, finished, kept_records, question_types

DocumentSplit = Literal["train", "val", "test"]

_MIRROR = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}


class _Record(msgspec.Struct, gc=False):
    questionId: int | str
    image: str
    question: str | None = None
    answers: Answers = None
    question_types: list[str] | str | None = None
    docId: int | str | None = None
    ucsf_document_id: str | None = None


class DocVQA(VQADataset):
    """The official JSON files, in the old folders or the new ``spdocvqa_*`` ones, or a mirror.

    Args:
        root: The folder of the release or of a parquet mirror, or a ``.zip`` of it.
        split: Name of the split; test has no answers.
        on_bad_row: ``stop`` raises the error of a record that cannot be used, ``drop`` leaves such
            records out, named and counted.
        group_field: Field of a record that names its group, such as a person; a common name where
            None, and the document where there is none, see `qpriv.datasets.groups`.

    Raises:
        DataError: If a file is missing or broken.
    """

    test_split = "val"  # the official test split has no answers

    def __init__(
        self,
        root: str | Path,
        split: DocumentSplit = "train",
        on_bad_row: OnBadRow = "stop",
        group_field: str | None = None,
    ) -> None:
        self.check_split(split)
        report = DataReport(self.name, split, on_bad_row, default_group="document")
        groups = Groups("docvqa", report, group_field)
        tree = FileTree(root, report)
        official = (f"{split}_v1.0_withQT.json", f"{split}_v1.0.json")
        if parquet := mirror_files(tree, *_MIRROR[split], unless=official):
            samples = read_parquet(parquet, self.name, split, groups, report)
            names = [file.name for file in parquet]
            super().__init__(split, *finished(samples, report, names, group_field))
            return
        file = tree.require(*official, remedy="root is the folder that holds the question files")
        samples = self._read(file, PageFiles(tree), split, groups, report)
        super().__init__(split, *finished(samples, report, [file.name], group_field))

    def _read(
        self, file: DataFile, pages: PageFiles, split: str, groups: Groups, report: DataReport
    ) -> list[VQASample]:
        samples = []
        records = iter_records(file, groups.extended(_Record), array="data", report=report)
        for _, record, answers in kept_records(records, report, split != "test"):
            page = record.image.rsplit("/", 1)[-1].rsplit(".", 1)[0]
            document = page if record.docId is None else str(record.docId)
            where = f"{file.name}, question {record.questionId}"
            samples.append(
                VQASample(
                    dataset=self.name,
                    split=split,
                    qid=str(record.questionId),
                    image_id=page,
                    group_id=groups.of(record, where) or record.ucsf_document_id or document,
                    image=pages.image(record.image, where),
                    question=record.question or "",
                    answer=answers[0] if answers else "",
                    answers=answers,
                    answer_type=answer_type(answers),
                    meta={
                        "question_type": question_types(record.question_types),
                        "text": pages.text(page),
                    },
                )
            )
        return samples
