"""Questions about COCO images in the layout of the VQA challenge: the base of VQAv2 and OK-VQA."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import ClassVar

import msgspec

from qpriv.errors import DataError

from .base import VQADataset
from .files import DataFile
from .groups import Groups
from .image_index import ImageIndex
from .parquet import ParquetImage, content_id, iter_rows, mirror_files
from .reading import draw, has_gold, infer_answer_type, once
from .records import iter_records
from .report import DataReport, OnBadRow
from .sample import AnswerType, ImageSource, VQASample
from .tree import FileTree


class _Answer(msgspec.Struct, gc=False):
    answer: str


class _Question(msgspec.Struct, gc=False):
    question_id: int | str
    image_id: int | str
    question: str


class _Named(msgspec.Struct, gc=False):
    question_id: int | str


class _Annotation(msgspec.Struct, gc=False):
    question_id: int | str
    answers: list[_Answer | str] | None = None  # the mirrors: null in test, strings in OK-VQA's
    question_type: str | None = None
    answer_type: str | None = None
    multiple_choice_answer: str | None = None


class _MirrorRow(_Annotation, kw_only=True, gc=False):
    question: str
    image_id: int | str | None = None


@dataclass(frozen=True)
class CocoSplit:
    """The files of a split.

    Args:
        questions: Name of the questions file.
        annotations: Name of the annotations file; None where the answers are not public.
        images: COCO's name of the images, such as ``val2014``.
        mirror: Name of the split in the parquet mirror.
    """

    questions: str
    annotations: str | None
    images: str
    mirror: str


@dataclass(slots=True)
class _Row:
    """A question with its annotation and the place of its image."""

    question: _Question
    annotation: _Annotation | None
    image: ParquetImage | None = None
    group: str | None = None


class _BadAnnotations:
    """Annotations that cannot be used; what is lost is their questions, each counted once.

    Args:
        report: The account of the questions.
    """

    def __init__(self, report: DataReport) -> None:
        self._report = report
        self._of: dict[str, DataError] = {}
        self._unnamed: list[DataError] = []

    def add(self, record: bytes, error: DataError) -> None:
        """Keep the error of an annotation until its question is left out.

        Raises:
            DataError: If the report stops at bad rows.
        """
        if self._report.on_bad_row == "stop":
            self._report.refuse(error)
        try:
            qid = str(msgspec.json.decode(record, type=_Named).question_id)
        except msgspec.ValidationError:
            self._unnamed.append(error)
        else:
            self._of.setdefault(qid, error)

    def leave_out(self, qid: str) -> None:
        """Account for a question without an annotation that can be used."""
        if qid in self._of:
            self._report.refuse(self._of[qid])
        elif self._unnamed:  # any of them may be its own
            self._report.refuse(self._unnamed.pop(0))
        else:
            self._report.drop("question without an annotation")


class CocoVQA(VQADataset):
    """Base of the sets that ask about COCO images; see `VQAv2` and `OKVQA`."""

    files: ClassVar[Mapping[str, CocoSplit]]
    """The files of each split."""

    remedy: ClassVar[str]
    """Where to get the release."""

    rule = "official"
    val_split = None  # the official val split is the one with public answers to report on
    test_split = "val"

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
        report, names = DataReport(self.name, split, on_bad_row), self.files[split]
        groups = Groups("coco", report, group_field)
        tree = FileTree(root, report)
        mirror = mirror_files(tree, names.mirror, unless=(names.questions,))
        if mirror:
            rows = self._mirror(mirror, names, groups, report)
        else:
            rows = self._joined(tree, names, groups, report)
        drawn = draw(rows, report, cap, seed, group_field)
        drawn = once(drawn, lambda row: str(row.question.question_id), report)
        if not mirror and names.annotations:
            drawn = self._annotated(tree, names.annotations, drawn, report)
        if names.annotations and drawn and all(len(_answers(row.annotation)) == 1 for row in drawn):
            report.note("one answer a question: accuracy_official is 0 whatever a model says")
        images = tree.images()
        samples = [self._sample(split, row, _image(row, names, images), report) for row in drawn]
        super().__init__(split, samples, report)

    def _joined(
        self, tree: FileTree, names: CocoSplit, groups: Groups, report: DataReport
    ) -> Iterator[tuple[str, _Row]]:
        file = tree.require(names.questions, remedy=self.remedy)
        report.files += (file.name,)
        for _, found in iter_records(
            file, groups.extended(_Question), array="questions", report=report
        ):
            report.read += 1
            group = groups.of(found, f"{file.name}, question {found.question_id}")
            question = _Question(found.question_id, found.image_id, found.question)
            yield group or str(question.image_id), _Row(question, None, group=group)

    def _annotated(
        self, tree: FileTree, name: str, rows: list[_Row], report: DataReport
    ) -> list[_Row]:
        """Join the drawn questions with their annotations, by id, never by position."""
        file = tree.require(name, remedy=self.remedy)
        report.files += (file.name,)
        by_id = {str(row.question.question_id): row for row in rows}
        bad = _BadAnnotations(report)
        found = iter_records(file, _Annotation, array="annotations", report=report, refused=bad.add)
        for _, annotation in found:
            row = by_id.get(str(annotation.question_id))
            if row is not None and row.annotation is not None:
                report.repaired["second annotation of a question, not read"] += 1
            elif row is not None:
                self.check_annotation(annotation.multiple_choice_answer, file)
                # 4.4 million answers in VQAv2, most of them one of a few thousand strings
                annotation.answers = list(_answers(annotation))
                row.annotation = annotation
        for qid, row in by_id.items():
            if row.annotation is None:
                bad.leave_out(qid)
        due = [row for row in rows if row.annotation is not None]
        return [row for row in due if row.annotation and _is_due(row.annotation, file, report)]

    def _mirror(
        self, files: list[DataFile], names: CocoSplit, groups: Groups, report: DataReport
    ) -> Iterator[tuple[str, _Row]]:
        kind = groups.extended(_MirrorRow)
        for file in files:
            report.files += (file.name,)
            for number, index, row in iter_rows(file, kind, report=report):
                report.read += 1
                image = ParquetImage(file, number, index)
                image_id = row.image_id
                if image_id is None:
                    image_id = content_id(file, number, index)
                if names.annotations is None or _is_due(row, file, report):
                    question = _Question(row.question_id, image_id, row.question)
                    group = groups.of(row, f"{file.name}, question {row.question_id}")
                    yield group or str(image_id), _Row(question, _annotation(row), image, group)

    @classmethod
    def check_annotation(cls, multiple_choice_answer: str | None, file: DataFile) -> None:
        """Check that an annotation is of this set where another set's files have equal names.

        Raises:
            DataError: If it is not.
        """

    def _sample(self, split: str, row: _Row, image: ImageSource, report: DataReport) -> VQASample:
        question, annotation = row.question, row.annotation
        answers = _answers(annotation)
        answer = (annotation and annotation.multiple_choice_answer) or most_frequent(answers)
        kind = annotation.answer_type if annotation else None
        if answers and kind is None:
            report.repaired["annotation without answer_type: closed means yes or no"] += 1
        return VQASample(
            dataset=self.name,
            split=split,
            qid=str(question.question_id),
            image_id=str(question.image_id),
            group_id=row.group or f"coco/{question.image_id}",
            image=image,
            question=question.question,
            answer=answer,
            answers=answers,
            answer_type=_answer_type(kind, answer),
            meta={
                "question_type": (annotation and annotation.question_type) or "",
                "answer_type": kind or "",
            },
        )


def most_frequent(answers: tuple[str, ...]) -> str:
    """Return the most frequent answer, of several the one that comes first; "" of none.

    >>> most_frequent(("pony", "tail", "tail", "pony"))
    'pony'
    """
    # `most_common` keeps the order of first appearance among equals
    return Counter(answers).most_common(1)[0][0] if answers else ""


def _annotation(row: _MirrorRow) -> _Annotation:
    """Return the part of a mirror's row that is held; the fields of groups are left behind."""
    return _Annotation(
        row.question_id,
        row.answers,
        row.question_type,
        row.answer_type,
        row.multiple_choice_answer,
    )


def _answers(annotation: _Annotation | None) -> tuple[str, ...]:
    given = (annotation.answers or []) if annotation else []
    return tuple(intern(item if isinstance(item, str) else item.answer) for item in given)


def _is_due(annotation: _Annotation, file: DataFile, report: DataReport) -> bool:
    """Return whether an annotation has a gold answer, and those by which answers are scored."""
    answers = _answers(annotation)
    if not has_gold(annotation.multiple_choice_answer or most_frequent(answers), report):
        return False
    if not answers:
        report.refuse(
            DataError(
                "a main answer and no `answers`, by which accuracy is scored",
                where=f"{file.name}, question {annotation.question_id}",
                remedy="take the release's own annotations, which have ten",
            )
        )
    return bool(answers)


def _answer_type(kind: str | None, answer: str) -> AnswerType:
    if kind is None:
        return infer_answer_type(answer)
    return AnswerType.CLOSED if kind == "yes/no" else AnswerType.OPEN


def _image(row: _Row, names: CocoSplit, images: ImageIndex) -> ImageSource:
    if row.image is not None:
        return row.image
    image_id = row.question.image_id
    if not str(image_id).isdecimal():
        raise DataError(
            f"image_id {image_id!r} is not a number",
            where=f"{names.questions}, question {row.question.question_id}",
            remedy="COCO images are named by number",
        )
    number = f"{int(image_id):012d}.jpg"
    name = f"COCO_{names.images}_{number}"
    if name not in images and number in images:  # as COCO names its files since 2017
        name = number
    return images.source(name, f"{names.questions}, question {row.question.question_id}")
