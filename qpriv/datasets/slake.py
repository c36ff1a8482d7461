"""SLAKE: English and Chinese questions about CT, MRI and X-ray images."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from qpriv.errors import DataError

from .base import VQADataset
from .groups import Groups
from .mirrors import iter_mirror
from .parquet import mirror_files
from .reading import as_text, draw, has_gold, named_apart, parse_answer_type
from .records import iter_records
from .report import DataReport, OnBadRow
from .sample import VQASample
from .tree import FileTree

_FILES = {
    "train": ("train.json",),
    "val": ("validate.json", "validation.json"),
    "test": ("test.json",),
}
_MIRROR = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}
_REMEDY = "unpack Slake1.0.zip of https://www.med-vqa.com/slake, or BoKelvin/SLAKE and its imgs.zip"


class _Record(msgspec.Struct, gc=False):
    qid: int | str
    img_name: str
    question: str
    answer: str | int | float
    q_lang: str = "en"
    answer_type: str = ""
    content_type: str = ""
    base_type: str = ""
    modality: str = ""
    location: str = ""


class SLAKE(VQADataset):
    """SLAKE 1.0 in its official layout or in a mirror.

    Mirrors are ``BoKelvin/SLAKE`` (the same JSON files) and the English parquet
    ``mdwiratathya/SLAKE-vqa-english``.

    The two languages have different image splits: inside one language no image is shared between
    splits, but ``lang="all"`` has 142 of its 180 test images in training too.

    Reference: Liu et al., "SLAKE", ISBI 2021. Licence: CC BY 4.0.

    Args:
        root: Folder or archive with ``train.json``, ``validate.json``, ``test.json`` and
            ``imgs/xmlab*/source.jpg``.
        split: ``train``, ``val`` or ``test``.
        lang: ``en``, ``zh`` or ``all``.
        cap: Largest number of questions, drawn by image; all where None.
        seed: Seed of the draw.
        group_field: Field of a record that names its group, such as the patient; a common name
            where None, and the image where there is none, see `qpriv.datasets.groups`.
        on_bad_row: ``stop`` raises the error of a row that cannot be used, ``drop`` leaves such rows
            out, named and counted.

    Raises:
        DataError: If a file is missing or broken.
    """

    rule = "medical"

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        lang: Literal["en", "zh", "all"] = "en",
        cap: int | None = None,
        seed: int = 0,
        group_field: str | None = None,
        on_bad_row: OnBadRow = "stop",
    ) -> None:
        self.check_split(split)
        report = DataReport(self.name, split, on_bad_row)
        tree = FileTree(root, report)
        groups = Groups("slake", report, group_field)
        mirror = mirror_files(tree, *_MIRROR[split], unless=_FILES[split])
        if mirror:
            _check_lang(lang, mirror[0].name, report)
            rows = iter_mirror(self.name, split, mirror, report, group_field)
        else:
            rows = _records(tree, split, lang, groups, report)
        super().__init__(
            split, draw(named_apart(rows, report), report, cap, seed, group_field), report
        )


def _check_lang(lang: str, where: str, report: DataReport) -> None:
    """Check that a parquet mirror, which is English, has the language that is asked for.

    Raises:
        DataError: If it has not.
    """
    if lang == "zh":
        raise DataError(
            "the parquet mirror has English questions alone",
            where=where,
            remedy="take the release or BoKelvin/SLAKE, or set `lang: en`",
        )
    if lang == "all":
        report.note("the parquet mirror has English questions alone")


def _records(
    tree: FileTree, split: str, lang: str, groups: Groups, report: DataReport
) -> Iterator[tuple[str, VQASample]]:
    file = tree.require(*_FILES[split], remedy=_REMEDY)
    report.files += (file.name,)
    images = tree.images(parts=2)  # every image is called source.jpg
    for _, record in iter_records(file, groups.extended(_Record), report=report):
        report.read += 1
        answer = as_text(record.answer, "answer", report)
        if lang not in ("all", record.q_lang):
            report.drop(f"language {record.q_lang}")
        elif has_gold(answer, report):
            picture = images.find(record.img_name, f"{file.name}, qid {record.qid}")
            image_id = _image_id(picture.id)
            group = groups.of(record, f"{file.name}, qid {record.qid}")
            yield (
                group or image_id,
                VQASample(
                    dataset="SLAKE",
                    split=split,
                    qid=str(record.qid),
                    image_id=image_id,
                    group_id=group or f"slake/{image_id}",
                    image=picture.source,
                    question=record.question,
                    answer=answer,
                    answers=(answer,),
                    answer_type=parse_answer_type(record.answer_type, answer, report),
                    lang=record.q_lang,
                    meta={
                        "question_type": record.content_type,
                        "base_type": record.base_type,
                        "modality": record.modality,
                        "location": record.location,
                    },
                ),
            )


def _image_id(name: str) -> str:
    """Return what an image is called: by its folder, as all files are ``source.jpg``.

    >>> _image_id("xmlab0/source.jpg"), _image_id("imgs/scan7.png")
    ('xmlab0', 'imgs/scan7.png')
    """
    folder, _, base = name.rpartition("/")
    return folder if folder and base.lower().startswith("source.") else name
