"""``imdb`` files: the NumPy pickles in which PFL-DocVQA and several frameworks ship questions.

A pickle can run any program while it is loaded, and NumPy's object arrays are pickles. They are
loaded only where `allow_pickle` says so; `convert_imdb` turns one into JSON, once and for all.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qpriv.datasets.base import VQADataset
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import VQASample
from qpriv.datasets.tree import FileTree
from qpriv.errors import DataError

from .page import KnownText, PageText, Word, quad_of
from .reading import PageFiles, Record, answer_type, finished, kept_records, required

_SCALE = 10_000
"""Side of the square in which normalised boxes are kept; scaled to the image when it is read."""


def load_imdb(path: Path, allow_pickle: bool) -> list[Record]:
    """Return the records of an imdb file, its header left out.

    Args:
        path: A ``.npy`` file, or the ``.json`` that `convert_imdb` made of it.
        allow_pickle: Load the pickle inside a ``.npy`` file, trusting where it came from.

    Raises:
        DataError: If it is a pickle and that is not allowed, or is no imdb file.
    """
    if path.suffix == ".json":
        records: list[Record] = json.loads(path.read_bytes())
        return records
    if not allow_pickle:
        raise DataError(
            "a pickle, which can run any program when it is loaded",
            where=str(path),
            remedy="set allow_pickle: true if you trust its source, or convert it elsewhere",
        )
    try:
        content = np.load(path, allow_pickle=True)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"not a NumPy file: {error}", where=str(path)) from error
    rows = [row for row in content.ravel().tolist() if isinstance(row, Mapping)]
    questions = [row for row in rows if "question" in row]
    if not questions:
        raise DataError("no questions inside", where=str(path), remedy="use an imdb file")
    return questions


def convert_imdb(source: Path, target: Path) -> int:
    """Turn a trusted imdb file into JSON and return the number of its questions."""
    records = load_imdb(source, allow_pickle=True)
    target.write_text(json.dumps(records, default=_plain), encoding="utf-8")
    return len(records)


def _plain(value: object) -> object:
    """Return a NumPy array or number as what JSON knows."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


class PFLDocVQA(VQADataset):
    """PFL-DocVQA (Tito et al. 2023, arXiv 2312.10108): invoices, grouped by provider.

    Args:
        root: Folder with the imdb files and the images.
        split: Name of the split; every ``*{split}*.npy`` (or ``.json``) file is read, so that the
            clients' shards add up to the training set.
        allow_pickle: Load NumPy pickles.
    """

    def __init__(self, root: str | Path, split: str = "train", allow_pickle: bool = False) -> None:
        self.check_split(split)
        found = [p for p in sorted(Path(root).rglob(f"*{split}*")) if p.suffix in {".npy", ".json"}]
        # a converted file stands for its pickle
        files = [p for p in found if p.suffix == ".json" or p.with_suffix(".json") not in found]
        if not files:
            raise DataError(f"no *{split}*.npy file", where=str(root), remedy="check root")
        report = DataReport(self.name, split)
        pages, samples = PageFiles(FileTree(root, report)), list[VQASample]()
        for file in files:
            records = load_imdb(file, allow_pickle)
            for record, answers in kept_records(records, report, answered=split != "test"):
                samples.append(self._sample(record, answers, pages, str(file)))
        super().__init__(split, *finished(samples, report, map(str, files)))

    def _sample(
        self, record: Record, answers: tuple[str, ...], pages: PageFiles, where: str
    ) -> VQASample:
        name = str(required(record, "image_name", where))
        provider = name.rsplit("/", 1)[-1].split("_")[0]
        return VQASample(
            dataset=self.name,
            split=self._split_of(record),
            qid=str(required(record, "question_id", where)),
            image_id=name,
            group_id=provider,
            image=pages.image(name, where),
            question=str(record["question"]),
            answer=answers[0] if answers else "",
            answers=answers,
            answer_type=answer_type(answers),
            meta={"provider": provider, "text": _text(record)},
        )

    @staticmethod
    def _split_of(record: Record) -> str:
        return str(record.get("set_name", "train"))


def _text(record: Record) -> KnownText | None:
    """Return the words inside a record; their boxes are shares of the page."""
    tokens, boxes = record.get("ocr_tokens"), record.get("ocr_normalized_boxes")
    if tokens is None or boxes is None:
        return None
    words = []
    for token, box in zip(tokens, np.asarray(boxes, dtype=float).reshape(-1, 4), strict=True):
        left, top, right, bottom = (round(float(share) * _SCALE) for share in box)
        words.append(Word(str(token), quad_of((left, top, right, bottom))))
    return KnownText(PageText(_SCALE, _SCALE, tuple(words)))
