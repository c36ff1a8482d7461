"""MP-DocVQA and DUDE: questions about documents of several pages.

The models of this suite see one page. They are given the page that holds the answer; the others
are named in ``meta["pages"]``, since an answer must be erased on all of them.
"""

from pathlib import Path

from qpriv.datasets.base import VQADataset
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import VQASample
from qpriv.datasets.tree import FileTree

from .docvqa import DocumentSplit
from .reading import (
    PageFiles,
    Record,
    answer_type,
    answers_of,
    finished,
    kept_records,
    read_records,
    required,
)


class MPDocVQA(VQADataset):
    """MP-DocVQA (Tito, Karatzas and Valveny 2022, arXiv 2212.05935), official JSON.

    Args:
        root: The folder of the release, or a ``.zip`` of it.
        split: Name of the split; test has no answers.
    """

    def __init__(self, root: str | Path, split: DocumentSplit = "train") -> None:
        self.check_split(split)
        report = DataReport(self.name, split)
        tree = FileTree(root, report)
        file = tree.require(f"{split}.json", remedy="root is the folder with the question files")
        pages, samples = PageFiles(tree), list[VQASample]()
        for record, answers in kept_records(read_records(file), report, split != "test"):
            qid = str(required(record, "questionId", file.name))
            names = [str(name) for name in required(record, "page_ids", file.name)]
            number = int(record.get("answer_page_idx") or 0)
            if not 0 <= number < len(names):
                report.drop("answer page outside the document")
                continue
            samples.append(
                VQASample(
                    dataset=self.name,
                    split=split,
                    qid=qid,
                    image_id=names[number],
                    group_id=str(required(record, "doc_id", file.name)),
                    image=pages.image(names[number], f"{file.name}, question {qid}"),
                    question=str(record["question"]),
                    answer=answers[0] if answers else "",
                    answers=answers,
                    answer_type=answer_type(answers),
                    meta={"text": pages.text(names[number]), "pages": tuple(names)},
                )
            )
        super().__init__(split, *finished(samples, report, [file.name]))


class DUDE(VQADataset):
    """DUDE (Van Landeghem et al. 2023, arXiv 2305.08455), official JSON.

    Its not-answerable questions stay, with ``meta["answerable"]`` False and no accepted answer:
    a ready test of models that have learned to abstain.

    Args:
        root: The folder of the release, or a ``.zip`` of it.
        split: Name of the split; test has no answers.
    """

    def __init__(self, root: str | Path, split: DocumentSplit = "train") -> None:
        self.check_split(split)
        report = DataReport(self.name, split)
        tree = FileTree(root, report)
        names = [name for name in tree.names() if "DUDE" in name and name.endswith(".json")]
        file = tree.require(
            *sorted((name.rsplit("/", 1)[-1] for name in names), reverse=True) or ["DUDE_gt.json"],
            remedy="root is the folder that holds *DUDE*gt*.json",
        )
        pages, samples = PageFiles(tree), list[VQASample]()
        records = [r for r in read_records(file) if r.get("data_split", split) == split]
        for record, answers in kept_records(records, report, answered=False):
            answerable = record.get("answer_type") != "not-answerable"
            if split != "test" and answerable and not answers:
                report.empty_golds += 1
                report.drop("no gold answer")
                continue
            samples.append(self._sample(record, answers, answerable, pages, file.name))
        super().__init__(split, *finished(samples, report, [file.name]))

    def _sample(
        self,
        record: Record,
        answers: tuple[str, ...],
        answerable: bool,
        pages: PageFiles,
        where: str,
    ) -> VQASample:
        document = str(required(record, "docId", where))
        page = f"{document}_{answer_page(record)}"
        variants = answers_of({"answers": record.get("answers_variants")})
        accepted = (*answers, *(v for v in variants if v not in answers)) if answerable else ()
        return VQASample(
            dataset=self.name,
            split=str(record.get("data_split", "train")),
            qid=str(required(record, "questionId", where)),
            image_id=page,
            group_id=document,
            image=pages.image(page, f"{where}, question {record['questionId']}"),
            question=str(record["question"]),
            answer=accepted[0] if accepted else "",
            answers=accepted,
            answer_type=answer_type(accepted),
            meta={
                "question_type": record.get("answer_type"),
                "answerable": answerable,
                "text": pages.text(page),
            },
        )


def answer_page(record: Record) -> int:
    """Return the number of the page with the answer in the names of the images.

    Annotations count pages from 1, image files from 0.

    >>> answer_page({"answers_page_bounding_boxes": [[{"page": 3}]]})
    2
    """
    boxes = [box for group in record.get("answers_page_bounding_boxes") or () for box in group]
    return max(0, int(boxes[0].get("page", 1)) - 1) if boxes else 0
