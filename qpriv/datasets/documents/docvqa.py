"""DocVQA: questions about single pages, as released on the Robust Reading portal.

Mathew, Karatzas and Jawahar 2021 (arXiv 2007.00398). The release needs registration at
https://rrc.cvc.uab.es/?ch=17; 39,463 / 5,349 / 5,188 questions on 10,194 / 1,286 / 1,287 pages.
"""

from pathlib import Path
from typing import Literal

from qpriv.datasets.base import VQADataset
from qpriv.datasets.files import DataFile
from qpriv.datasets.parquet import mirror_files
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import VQASample
from qpriv.datasets.tree import FileTree

from .docvqa_parquet import read_parquet
from .reading import PageFiles, answer_type, finished, kept_records, read_records, required

DocumentSplit = Literal["train", "val", "test"]

_MIRROR = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}


class DocVQA(VQADataset):
    """The official JSON files, in the old folders or the new ``spdocvqa_*`` ones, or a mirror.

    Args:
        root: The folder of the release or of a parquet mirror, or a ``.zip`` of it.
        split: Name of the split; test has no answers.
    """

    def __init__(self, root: str | Path, split: DocumentSplit = "train") -> None:
        self.check_split(split)
        report = DataReport(self.name, split)
        tree = FileTree(root, report)
        names = (f"{split}_v1.0_withQT.json", f"{split}_v1.0.json")
        if parquet := mirror_files(tree, *_MIRROR[split], unless=names):
            samples = read_parquet(parquet, self.name, split, report)
            super().__init__(split, *finished(samples, report, (file.name for file in parquet)))
            return
        file = tree.require(*names, remedy="root is the folder that holds the question files")
        samples = self._read(file, PageFiles(tree), split, report)
        super().__init__(split, *finished(samples, report, [file.name]))

    def _read(
        self, file: DataFile, pages: PageFiles, split: str, report: DataReport
    ) -> list[VQASample]:
        samples = []
        for record, answers in kept_records(read_records(file), report, split != "test"):
            qid = str(required(record, "questionId", file.name))
            image = str(required(record, "image", file.name))
            page = image.rsplit("/", 1)[-1].rsplit(".", 1)[0]
            samples.append(
                VQASample(
                    dataset=self.name,
                    split=split,
                    qid=qid,
                    image_id=page,
                    group_id=str(record.get("ucsf_document_id", record.get("docId", page))),
                    image=pages.image(image, f"{file.name}, question {qid}"),
                    question=str(record["question"]),
                    answer=answers[0] if answers else "",
                    answers=answers,
                    answer_type=answer_type(answers),
                    meta={
                        "question_type": "+".join(record.get("question_types") or ()) or None,
                        "text": pages.text(page),
                    },
                )
            )
        return samples
