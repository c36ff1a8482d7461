"""MP-DocVQA and DUDE: questions about documents of several pages.

The models of this suite see one page. They are given the page that holds the answer; the others
are named in ``meta["pages"]``, since an answer must be erased on all of them.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from qpriv.datasets.base import VQADataset
from qpriv.datasets.groups import Groups
from qpriv.datasets.records import iter_records
from qpriv.datasets.report import DataReport, OnBadRow
from qpriv.datasets.sample import VQASample
from qpriv.datasets.tree import FileTree

from .docvqa import DocumentSplit
from .reading import Answers, PageFiles, accepted, answer_type, finished, kept_records


class _Page(msgspec.Struct, gc=False):
    """A question about one of several pages, in MP-DocVQA."""

    questionId: int | str
    doc_id: int | str
    page_ids: list[str]
    question: str | None = None
    answers: Answers = None
    answer_page_idx: int | None = None


class _Box(msgspec.Struct, gc=False):
    page: int


class _Document(msgspec.Struct, gc=False):
    """A question about a document, in DUDE."""

    questionId: int | str
    docId: int | str
    question: str | None = None
    answers: Answers = None
    answers_variants: Answers = None
    answer_type: str | None = None
    answers_page_bounding_boxes: list[list[_Box] | None] | None = None
    data_split: str | None = None


class MPDocVQA(VQADataset):
    """MP-DocVQA (Tito, Karatzas and Valveny 2022, arXiv 2212.05935), official JSON.

    Args:
        root: The folder of the release, or a ``.zip`` of it.
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
        groups = Groups(self.name.lower(), report, group_field)
        tree = FileTree(root, report)
        file = tree.require(f"{split}.json", remedy="root is the folder with the question files")
        pages, samples = PageFiles(tree), list[VQASample]()
        records = iter_records(file, groups.extended(_Page), array="data", report=report)
        for _, record, answers in kept_records(records, report, split != "test"):
            names, number = record.page_ids, record.answer_page_idx or 0
            if not 0 <= number < len(names):
                report.drop("answer page outside the document")
                continue
            where = f"{file.name}, question {record.questionId}"
            samples.append(
                VQASample(
                    dataset=self.name,
                    split=split,
                    qid=str(record.questionId),
                    image_id=names[number],
                    group_id=groups.of(record, where) or str(record.doc_id),
                    image=pages.image(names[number], where),
                    question=record.question or "",
                    answer=answers[0] if answers else "",
                    answers=answers,
                    answer_type=answer_type(answers),
                    meta={"text": pages.text(names[number]), "pages": tuple(names)},
                )
            )
        super().__init__(split, *finished(samples, report, [file.name], group_field))


class DUDE(VQADataset):
    """DUDE (Van Landeghem et al. 2023, arXiv 2305.08455), official JSON.

    Its not-answerable questions stay, with ``meta["answerable"]`` False and no accepted answer:
    a ready test of models that have learned to abstain.

    Args:
        root: The folder of the release, or a ``.zip`` of it.
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
        groups = Groups(self.name.lower(), report, group_field)
        tree = FileTree(root, report)
        names = [name for name in tree.names() if "DUDE" in name and name.endswith(".json")]
        file = tree.require(
            *sorted((name.rsplit("/", 1)[-1] for name in names), reverse=True) or ["DUDE_gt.json"],
            remedy="root is the folder that holds *DUDE*gt*.json",
        )
        pages, samples = PageFiles(tree), list[VQASample]()
        records = _of_split(
            iter_records(file, groups.extended(_Document), array="data", report=report),
            split,
            report,
        )
        for _, record, answers in kept_records(records, report, answered=False):
            answerable = record.answer_type != "not-answerable"
            if split != "test" and answerable and not answers:
                report.empty_golds += 1
                report.drop("no gold answer")
                continue
            variants = accepted(record.answers_variants, report)
            gold = dict.fromkeys((*answers, *variants)) if answerable else {}
            where = f"{file.name}, question {record.questionId}"
            group = groups.of(record, where)
            samples.append(self._sample(record, split, tuple(gold), pages, where, group))
        super().__init__(split, *finished(samples, report, [file.name], group_field))

    def _sample(
        self,
        record: _Document,
        split: str,
        answers: tuple[str, ...],
        pages: PageFiles,
        where: str,
        group: str | None,
    ) -> VQASample:
        document = str(record.docId)
        page = f"{document}_{answer_page(record.answers_page_bounding_boxes)}"
        return VQASample(
            dataset=self.name,
            split=split,
            qid=str(record.questionId),
            image_id=page,
            group_id=group or document,
            image=pages.image(page, where),
            question=record.question or "",
            answer=answers[0] if answers else "",
            answers=answers,
            answer_type=answer_type(answers),
            meta={
                "question_type": record.answer_type,
                "answerable": record.answer_type != "not-answerable",
                "text": pages.text(page),
            },
        )


def _of_split(
    records: Iterable[tuple[str, _Document]], split: str, report: DataReport
) -> Iterator[tuple[str, _Document]]:
    """Yield the records of a split, and count those of the others, which stand in the same file."""
    for place, record in records:
        if (record.data_split or split) == split:
            yield place, record
        else:
            report.read += 1
            report.drop(f"belongs to the {record.data_split} split")


def answer_page(boxes: list[list[_Box] | None] | None) -> int:
    """Return the number of the page with the answer in the names of the images.

    Annotations count pages from 1, image files from 0.

    >>> answer_page([[_Box(page=3)]]), answer_page(None)
    (2, 0)
    """
    first = next((box for group in boxes or () for box in group or ()), None)
    return max(0, first.page - 1) if first else 0
