"""VQA-RAD: questions by clinicians about radiology images."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from .base import VQADataset
from .folds import assign_groups
from .groups import Groups, joined
from .mirrors import iter_mirror
from .parquet import mirror_files
from .reading import as_text, draw, has_gold, named_apart, parse_answer_type
from .records import iter_records
from .report import DataReport, OnBadRow
from .sample import VQASample
from .tree import FileTree

_RELEASE = "VQA_RAD Dataset Public.json"
_MEVF = {"train": "trainset.json", "test": "testset.json"}
_REMEDY = "get the JSON file and the image folder from https://osf.io/89kps"


class _Record(msgspec.Struct, gc=False):
    qid: int | str
    image_name: str
    question: str
    answer: str | int | float
    answer_type: str = ""
    phrase_type: str = ""
    question_type: str = ""
    image_organ: str = ""


class VQARAD(VQADataset):
    """VQA-RAD as released (OSF 89kps), in the MEVF layout, or in a mirror.

    The MEVF layout is ``trainset.json``, ``testset.json`` and ``images/``; the mirror is the
    parquet ``flaviagiammarino/vqa-rad``.

    The release has no validation split: one is carved from the training images. Its test split
    shares 202 of 203 images with the training split, so it is no clean set of non-members.

    Reference: Lau et al., "A dataset of clinically generated visual questions and answers about
    radiology images", Scientific Data 2018. Licence: CC0 1.0.

    Args:
        root: Folder or archive with the JSON file and the images.
        split: ``train``, ``val`` (carved) or ``test``.
        cap: Largest number of questions, drawn by image; all where None.
        seed: Seed of the draw.
        val_fraction: Share of the training images that become ``val``; 0 keeps all in ``train``.
        val_seed: Seed of the carving, apart from ``seed`` so that runs share one ``val``.
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
        cap: int | None = None,
        seed: int = 0,
        val_fraction: float = 0.1,
        val_seed: int = 0,
        group_field: str | None = None,
        on_bad_row: OnBadRow = "stop",
    ) -> None:
        self.check_split(split)
        report = DataReport(self.name, split, on_bad_row)
        tree = FileTree(root, report)
        part = "test" if split == "test" else "train"
        mirror = mirror_files(tree, part, unless=(_RELEASE, _MEVF[part]))
        rows: Iterable[tuple[str, VQASample]]
        if mirror:
            rows = iter_mirror(self.name, split, mirror, report, group_field)
        else:
            groups = Groups("vqarad", report, group_field)
            rows = _records(tree, split, part, groups, report)
        rows = named_apart(rows, report)
        if part == "train":
            rows = _carved(list(rows), split == "val", val_fraction, val_seed, report)
        super().__init__(split, draw(rows, report, cap, seed, group_field), report)


def _records(
    tree: FileTree, split: str, part: str, groups: Groups, report: DataReport
) -> Iterator[tuple[str, VQASample]]:
    file = tree.require(_RELEASE, _MEVF[part], remedy=_REMEDY)
    report.files += (file.name,)
    of_all_splits = not Path(file.name).name.lower().startswith(_MEVF[part])
    images = tree.images()
    for index, record in iter_records(file, groups.extended(_Record), report=report):
        report.read += 1
        is_test = record.phrase_type.strip().lower().startswith("test")
        if of_all_splits and is_test is not (part == "test"):
            report.drop(f"belongs to the {'train' if part == 'test' else 'test'} split")
            continue
        answer = as_text(record.answer, "answer", report)
        if has_gold(answer, report):
            picture = images.find(record.image_name, f"{file.name}, record {index}")
            group = groups.of(record, f"{file.name}, record {index}")
            yield (
                group or picture.id,
                VQASample(
                    dataset="VQARAD",
                    split=split,
                    qid=str(record.qid),
                    image_id=picture.id,
                    group_id=group or f"vqarad/{picture.id}",
                    image=picture.source,
                    question=record.question,
                    answer=answer,
                    answers=(answer,),
                    answer_type=parse_answer_type(record.answer_type, answer, report),
                    meta={
                        "question_type": record.question_type,
                        "phrase_type": record.phrase_type,
                        "organ": record.image_organ,
                    },
                ),
            )


def _carved(
    rows: list[tuple[str, VQASample]],
    validation: bool,
    fraction: float,
    seed: int,
    report: DataReport,
) -> list[tuple[str, VQASample]]:
    """Return the rows of the carved validation groups, or those of the others."""
    names = joined((sample.image_id, group) for group, sample in rows)
    rows = [(names.get(group, group), sample) for group, sample in rows]
    shares = {"val": fraction, "train": 1 - fraction}
    split_of = assign_groups((group for group, _ in rows), shares, seed, "val")
    split = "val" if validation else "train"
    kept = [(group, sample) for group, sample in rows if split_of[group] == split]
    other = "train" if validation else "the carved val"
    report.drop(f"image belongs to {other}", len(rows) - len(kept))
    return kept
