"""PathVQA: questions about pathology images, released as pickles."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from qpriv.errors import DataError

from .base import VQADataset
from .groups import Groups
from .mirrors import iter_mirror
from .parquet import mirror_files
from .pickles import load_pickle
from .reading import as_text, draw, has_gold, infer_answer_type, named_apart
from .report import DataReport, OnBadRow
from .sample import VQASample
from .tree import FileTree

_MIRROR = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}
_REMEDY = "unpack pvqa.zip as linked from https://github.com/UCSD-AI4H/PathVQA"


class _Record(msgspec.Struct, gc=False):
    image: str
    question: str
    answer: str | int | float


class _Numbered(msgspec.Struct, gc=False):
    img_id: str
    sent: str
    question_id: int | str


class PathVQA(VQADataset):
    """PathVQA as released (``pvqa/``), or as the parquet mirror ``flaviagiammarino/path-vqa``.

    The release is a set of pickles. They are read without running any code; one that names a
    class or function is refused. Rows come from ``{split}_qa.pkl``, question ids from
    ``{split}_vqa.pkl`` where it is there; closed means yes or no, the release's own rule.

    Reference: He et al., "PathVQA", 2020. Licence: MIT tag for the questions; the pictures belong
    to textbook publishers and the PEIR library.

    Args:
        root: Folder or archive with ``pvqa/qas`` and ``pvqa/images``.
        split: ``train``, ``val`` or ``test``.
        cap: Largest number of questions, drawn by image; all where None.
        seed: Seed of the draw.
        group_field: Field of a record that names its group, such as the patient; a common name
            where None, and the image where there is none, see `qpriv.datasets.groups`.
        on_bad_row: ``stop`` raises the error of a row that cannot be used, ``drop`` leaves such rows
            out, named and counted.

    Raises:
        DataError: If a file is missing or broken, or a pickle would run code.
    """

    rule = "medical"

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        cap: int | None = None,
        seed: int = 0,
        group_field: str | None = None,
        on_bad_row: OnBadRow = "stop",
    ) -> None:
        self.check_split(split)
        report = DataReport(self.name, split, on_bad_row)
        tree = FileTree(root, report)
        mirror = mirror_files(tree, *_MIRROR[split], unless=(f"{split}_qa.pkl",))
        if mirror:
            rows = iter_mirror(self.name, split, mirror, report, group_field)
        else:
            rows = _records(tree, split, Groups("pathvqa", report, group_field), report)
        super().__init__(
            split, draw(named_apart(rows, report), report, cap, seed, group_field), report
        )


def _records(
    tree: FileTree, split: str, groups: Groups, report: DataReport
) -> Iterator[tuple[str, VQASample]]:
    file = tree.require(f"{split}_qa.pkl", remedy=_REMEDY)
    report.files += (file.name,)
    kind = groups.extended(_Record)
    records = [
        _converted(record, kind, f"{file.name}, record {position}", report)
        for position, record in enumerate(load_pickle(file, list))
    ]
    images = tree.images()
    for position, (qid, record) in enumerate(zip(_ids(tree, split, records), records, strict=True)):
        if record is None:
            continue
        report.read += 1
        answer = as_text(record.answer, "answer", report)
        if has_gold(answer, report):
            picture = images.find(record.image, f"{file.name}, record {position}")
            image_id = picture.id.removesuffix(".jpg")
            group = groups.of(record, f"{file.name}, record {position}")
            yield (
                group or image_id,
                VQASample(
                    dataset="PathVQA",
                    split=split,
                    qid=qid,
                    image_id=image_id,
                    group_id=group or f"pathvqa/{image_id}",
                    image=picture.source,
                    question=record.question,
                    answer=answer,
                    answers=(answer,),
                    answer_type=infer_answer_type(answer),
                    meta={"question_type": question_type(record.question, answer)},
                ),
            )


def _ids(tree: FileTree, split: str, records: list[_Record | None]) -> list[str]:
    """Return the question ids of the release where they match row by row, positions otherwise."""
    file = tree.find(f"{split}_vqa.pkl")
    numbered = load_pickle(file, list[_Numbered]) if file else []
    if len(numbered) == len(records) and all(
        record is None or (row.img_id, row.sent) == (record.image, record.question)
        for row, record in zip(numbered, records, strict=True)
    ):
        return [str(row.question_id) for row in numbered]
    return [str(position) for position in range(len(records))]


def _converted(
    record: Any,  # noqa: ANN401 - whatever a pickle holds
    kind: type[_Record],
    where: str,
    report: DataReport,
) -> _Record | None:
    """Return a record as declared, None where it is not, and is left out."""
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        remedy = "this is not the release's format, or the record was edited"
        report.refuse(DataError(f"unexpected record: {error}", where=where, remedy=remedy))
        report.read += 1
        return None


def question_type(question: str, answer: str) -> str:
    """Return the type the paper sorts a question by: its first word, or yes/no.

    >>> question_type("How many cells?", "two"), question_type("Is it a cell?", "yes")
    ('how many', 'yes/no')
    """
    if answer.strip().lower() in {"yes", "no"}:
        return "yes/no"
    words = question.lower().split()
    if words[:1] == ["how"] and words[1:2] in (["many"], ["much"]):
        return " ".join(words[:2])
    return words[0] if words else ""
