"""``imdb`` files: the NumPy pickles in which PFL-DocVQA and several frameworks ship questions.

A pickle can run any program while it is loaded, and NumPy's object arrays are pickles. They are
loaded only where `allow_pickle` says so; `convert_imdb` turns one into JSON, once and for all.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from qpriv.datasets.base import VQADataset
from qpriv.datasets.files import DiskFile, open_regular
from qpriv.datasets.groups import Groups
from qpriv.datasets.records import iter_records
from qpriv.datasets.report import DataReport, OnBadRow
from qpriv.datasets.sample import VQASample
from qpriv.datasets.tree import FileTree, MissingFileError
from qpriv.errors import DataError, reason

from .page import KnownText, PageText, Word, quad_of
from .reading import Answers, PageFiles, answer_type, finished, kept_records

_SCALE = 10_000
"""Side of the square in which normalised boxes are kept; scaled to the image when it is read."""

_FARTHEST = 10
"""Page widths and heights within which a box may lie; detectors overshoot the page by a little."""


class Record(msgspec.Struct, gc=False):
    """A question of an imdb file."""

    question_id: int | str
    image_name: str
    question: str | None = None
    answers: Answers = None
    set_name: str | None = None
    ocr_tokens: list[str] | None = None
    ocr_normalized_boxes: list[tuple[float, float, float, float]] | None = None


def load_imdb(
    path: Path,
    allow_pickle: bool,
    report: DataReport | None = None,
    kind: type[Record] = Record,
) -> Iterator[tuple[str, Record]]:
    """Yield the records of an imdb file with their places in it, its header left out.

    Args:
        path: A ``.npy`` file, or the ``.json`` that `convert_imdb` made of it.
        allow_pickle: Load the pickle inside a ``.npy`` file, trusting where it came from.
        report: Accounts for records that have not the fields, where these are left out.
        kind: The type of a record, such as one that `Groups.extended` returns.

    Raises:
        DataError: If it is a pickle and that is not allowed, is no imdb file, or a record has not
            the fields of one; names the file and the record.
    """
    if path.suffix == ".json":
        yield from iter_records(DiskFile(path), kind, report=report)
        return
    if not allow_pickle:
        raise DataError(
            "a pickle, which can run any program when it is loaded",
            where=str(path),
            remedy="if you trust its source, turn it into JSON by "
            "`qpriv.datasets.documents.imdb.convert_imdb`, or pass allow_pickle=True",
        )
    account, questions = report or DataReport("", ""), 0
    fields = [field.encode_name for field in msgspec.structs.fields(kind)]
    for number, row in enumerate(_rows(path)):
        if number == 0 and not (isinstance(row, Mapping) and "question" in row):
            continue  # the header
        questions += 1
        plain: object = row
        if isinstance(row, Mapping):
            plain = {name: _plain(row[name]) for name in fields if name in row}
        try:
            record = msgspec.convert(plain, kind)
        except msgspec.ValidationError as error:
            account.refuse(
                DataError(
                    f"unexpected record: {error}",
                    where=f"{path}, record {number}",
                    remedy="this is not the release's format",
                )
            )
            account.read += 1
            continue
        yield str(number), record
    if not questions:
        raise DataError("no questions inside", where=str(path), remedy="use an imdb file")


def _rows(path: Path) -> list[object]:
    """Return what the array in a NumPy pickle holds."""
    try:
        with open_regular(path) as file:
            content = np.load(file, allow_pickle=True)
    except DataError:
        raise
    except Exception as error:  # unpickling damaged bytes can end in any error
        raise DataError(
            f"not a NumPy file: {reason(error)}", where=str(path), remedy="download it again"
        ) from error
    if not isinstance(content, np.ndarray):
        raise DataError(
            "an archive of arrays, not one array", where=str(path), remedy="use an imdb file"
        )
    rows: list[object] = content.ravel().tolist()
    return rows


def convert_imdb(source: Path, target: Path, group_field: str | None = None) -> int:
    """Turn a trusted imdb file into JSON and return the number of its questions.

    Args:
        source: The ``.npy`` file.
        target: The ``.json`` file that is written.
        group_field: Another field to keep, which names groups; fields with a common name are kept.

    Raises:
        DataError: As `load_imdb`.
    """
    kind = Groups("", DataReport("", "")).extended(Record)
    kind = Groups("", DataReport("", ""), group_field).extended(kind)
    found = (record for _, record in load_imdb(source, allow_pickle=True, kind=kind))
    plain = (msgspec.to_builtins(record) for record in found)
    records = [{k: v for k, v in fields.items() if v is not None} for fields in plain]
    target.write_bytes(msgspec.json.encode(records))
    return len(records)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a value with lists in place of NumPy arrays, and numbers in place of NumPy's."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


class PFLDocVQA(VQADataset):
    """PFL-DocVQA (Tito et al. 2023, arXiv 2312.10108): invoices, grouped by provider.

    Args:
        root: Folder with the imdb files and the images.
        split: Name of the split; every ``*{split}*.npy`` (or ``.json``) file is read, so that the
            clients' shards add up to the training set.
        allow_pickle: Load NumPy pickles.
        on_bad_row: ``stop`` raises the error of a record that cannot be used, ``drop`` leaves such
            records out, named and counted.
        group_field: Field of a record that names its group, such as a person; a common name where
            None, and the provider where there is none, see `qpriv.datasets.groups`.

    Raises:
        DataError: If a file is missing or broken, or a pickle that may not be loaded.
    """

    test_split = "val"

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        allow_pickle: bool = False,
        on_bad_row: OnBadRow = "stop",
        group_field: str | None = None,
    ) -> None:
        self.check_split(split)
        found = [p for p in sorted(Path(root).rglob(f"*{split}*")) if p.suffix in {".npy", ".json"}]
        # a converted file stands for its pickle
        files = [p for p in found if p.suffix == ".json" or p.with_suffix(".json") not in found]
        if not files:
            raise MissingFileError(f"no *{split}*.npy file", where=str(root), remedy="check root")
        report = DataReport(self.name, split, on_bad_row, default_group="provider")
        groups = Groups("pfl-docvqa", report, group_field)
        kind = groups.extended(Record)
        pages, samples = PageFiles(FileTree(root, report)), list[VQASample]()
        for file in files:
            records = load_imdb(file, allow_pickle, report, kind)
            for place, record, answers in kept_records(records, report, answered=split != "test"):
                where = f"{file}, record {place}"
                group = groups.of(record, where)
                samples.append(self._sample(record, split, answers, pages, where, group))
        super().__init__(split, *finished(samples, report, map(str, files), group_field))

    def _sample(
        self,
        record: Record,
        split: str,
        answers: tuple[str, ...],
        pages: PageFiles,
        where: str,
        group: str | None,
    ) -> VQASample:
        provider = record.image_name.rsplit("/", 1)[-1].split("_")[0]
        return VQASample(
            dataset=self.name,
            split=record.set_name or split,
            qid=str(record.question_id),
            image_id=record.image_name,
            group_id=group or provider,
            image=pages.image(record.image_name, where),
            question=record.question or "",
            answer=answers[0] if answers else "",
            answers=answers,
            answer_type=answer_type(answers),
            meta={"provider": provider, "text": _text(record, where)},
        )


def _text(record: Record, where: str) -> KnownText | None:
    """Return the words inside a record; their boxes are shares of the page.

    Raises:
        DataError: If there are not as many boxes as words, or a box is not on the page.
    """
    tokens, boxes = record.ocr_tokens, record.ocr_normalized_boxes
    if tokens is None or boxes is None:
        return None
    if len(tokens) != len(boxes):
        raise DataError(
            f"{len(tokens)} words and {len(boxes)} boxes",
            where=where,
            remedy="convert the file anew, or take the release's",
        )
    words = []
    for token, box in zip(tokens, boxes, strict=True):
        if not all(math.isfinite(share) and abs(share) <= _FARTHEST for share in box):
            raise DataError(
                f"the box of {token!r} is no share of a page: {box}",
                where=where,
                remedy="boxes are left, top, right and bottom in shares of the page, 0 to 1",
            )
        left, top, right, bottom = (round(share * _SCALE) for share in box)
        words.append(Word(token, quad_of((left, top, right, bottom))))
    return KnownText(PageText(_SCALE, _SCALE, tuple(words)))
