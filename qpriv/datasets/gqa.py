"""GQA: questions about Visual Genome scenes, with how each question is built."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from .base import VQADataset
from .files import DataFile, size_of
from .groups import Groups
from .parquet import ParquetImage, iter_rows, mirror_files
from .reading import draw, has_gold, infer_answer_type, once
from .records import iter_records
from .report import DataReport, OnBadRow
from .sample import AnswerType, ImageSource, VQASample
from .shards import Shard, one_series
from .tree import FileTree

_WITHOUT_ANSWERS = frozenset({"test", "challenge", "submission"})
_CHUNKS = 10
_REMEDY = "unpack questions1.2.zip and images.zip of https://cs.stanford.edu/people/dorarad/gqa"


class _Types(msgspec.Struct, gc=False):
    structural: str | None = None
    semantic: str | None = None


class _Question(msgspec.Struct, gc=False):
    question: str
    imageId: str
    answer: str | None = None
    types: _Types | None = None
    id: str = ""

    def held(self, qid: str, group: str | None) -> "_Held":
        """Return what is held of a question, of which there are millions."""
        return _Held(qid, self.question, self.imageId, self.answer, self.types, group)


class _Held(msgspec.Struct, gc=False):
    id: str
    question: str
    imageId: str
    answer: str | None
    types: _Types | None
    group: str | None


class _Picture(msgspec.Struct, gc=False):
    id: str


class GQA(VQADataset):
    """GQA in its official layout, or as the parquet mirror ``lmms-lab/GQA``.

    A question counts as closed unless its structure is ``query``, as in Stanford's "binary"
    score. ``testdev`` is the split to report: its images are not in Visual Genome. ``test`` and
    ``challenge`` have no answers; predictions go to the test server.

    Reference: Hudson and Manning, "GQA", CVPR 2019. Licence: CC BY 4.0; the pictures keep theirs.

    Args:
        root: Folder or archive with ``{split}_balanced_questions.json`` and ``images/*.jpg``.
        split: ``train``, ``val``, ``testdev``, ``test``, ``challenge`` or ``submission``.
        subset: ``balanced``, which is what is scored, or ``all``.
        cap: Largest number of questions, drawn by image over the whole file; all where None.
        seed: Seed of the draw.
        group_field: Field of a record that names its group, such as the patient; a common name
            where None, and the image where there is none, see `qpriv.datasets.groups`.
        on_bad_row: ``stop`` raises the error of a row that cannot be used, ``drop`` leaves such rows
            out, named and counted.

    Raises:
        DataError: If a file is missing or broken.
    """

    splits = ("train", "val", "testdev", "test", "challenge", "submission")
    test_split = "testdev"
    rule = "gqa"

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        subset: Literal["balanced", "all"] = "balanced",
        cap: int | None = None,
        seed: int = 0,
        group_field: str | None = None,
        on_bad_row: OnBadRow = "stop",
    ) -> None:
        self.check_split(split)
        report = DataReport(self.name, split, on_bad_row)
        tree = FileTree(root, report)
        groups = Groups("gqa", report, group_field)
        name = f"{split}_{subset}_questions"
        official = (f"{name}.json", f"{name}_0.json")
        if parquet := mirror_files(tree, f"{split}_{subset}_instructions", unless=official):
            rows = _parquet_rows(parquet, split, groups, report)
            image = _parquet_images(tree, split, subset, report)
        else:
            rows = _json_rows(tree, split, subset, groups, report)
            image = _files(tree, report)
        drawn = draw(rows, report, cap, seed, group_field)
        drawn = once(drawn, lambda row: row.id, report)
        samples = [_sample(split, row, image(row), report) for row in drawn]
        super().__init__(split, samples, report)


def _json_rows(
    tree: FileTree, split: str, subset: str, groups: Groups, report: DataReport
) -> Iterator[tuple[str, _Held]]:
    name = f"{split}_{subset}_questions"
    for file in _chunks(tree, name, report) or [tree.require(f"{name}.json", remedy=_REMEDY)]:
        report.files += (file.name,)
        for key, question in iter_records(file, groups.extended(_Question), report=report):
            report.read += 1
            qid = question.id or key  # lists and tables have no keys
            if _is_due(question, split, report):
                group = groups.of(question, f"{file.name}, record {qid}")
                yield group or question.imageId, question.held(qid, group)


def _chunks(tree: FileTree, name: str, report: DataReport) -> list[DataFile]:
    """Return the files in which ``train_all`` comes, a folder of ten."""
    pattern = re.compile(rf"(.*/|){name}/{name}_(\d+)\.json(\.gz)?", re.IGNORECASE)
    found = (match for path in tree.names() if (match := pattern.fullmatch(path)))
    shards = [Shard(match[0], match[1], match[2]) for match in found]
    chunks = one_series(tree, shards, f"the chunks of {name}", lambda file: size_of(file) < 3)
    if chunks and len(chunks) != _CHUNKS:
        report.note(f"{len(chunks)} chunks of {name} are here, the release has {_CHUNKS}")
    return chunks


def _parquet_rows(
    files: list[DataFile], split: str, groups: Groups, report: DataReport
) -> Iterator[tuple[str, _Held]]:
    for file in files:
        report.files += (file.name,)
        for _, _, question in iter_rows(file, groups.extended(_Question), None, report):
            report.read += 1
            if _is_due(question, split, report):
                group = groups.of(question, f"{file.name}, record {question.id}")
                yield group or question.imageId, question.held(question.id, group)


def _is_due(question: _Question, split: str, report: DataReport) -> bool:
    return split in _WITHOUT_ANSWERS or has_gold(question.answer or "", report)


def _files(tree: FileTree, report: DataReport) -> Callable[[_Held], ImageSource]:
    images = tree.images()
    return lambda row: images.source(f"{row.imageId}.jpg", f"{report.files[0]}, record {row.id}")


def _parquet_images(
    tree: FileTree, split: str, subset: str, report: DataReport
) -> Callable[[_Held], ImageSource]:
    found: dict[str, ImageSource] = {}
    for file in mirror_files(tree, f"{split}_{subset}_images"):
        found.update(
            (picture.id, ParquetImage(file, group, row))
            for group, row, picture in iter_rows(file, _Picture)
        )
    files = _files(tree, report)
    return lambda row: found.get(row.imageId) or files(row)


def _sample(split: str, row: _Held, image: ImageSource, report: DataReport) -> VQASample:
    structural = row.types.structural if row.types else None
    answer = row.answer or ""
    if structural is None:
        closed = infer_answer_type(answer)
        report.repaired["question without its structure: closed means yes or no"] += 1
    else:
        closed = AnswerType.OPEN if structural == "query" else AnswerType.CLOSED
    return VQASample(
        dataset="GQA",
        split=split,
        qid=row.id,
        image_id=row.imageId,
        group_id=row.group or f"gqa/{row.imageId}",
        image=image,
        question=row.question,
        answer=answer,
        answers=(answer,) if answer else (),
        answer_type=closed,
        meta={
            "question_type": structural or "",
            "semantic": row.types.semantic if row.types else "",
        },
    )
