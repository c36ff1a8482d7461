"""`check`: read a data folder in full and report what it holds, for ``qpriv data check``."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from qpriv.datasets.normalisation import says_nothing
from qpriv.errors import ConfigError

from .base import VQADataset
from .conversations import Conversations
from .decoding import broken_images
from .documents.docvqa import DocVQA
from .documents.imdb import PFLDocVQA
from .documents.multi_page import DUDE, MPDocVQA
from .dpriv.celeba import CelebA
from .dpriv.cifar10 import CIFAR10
from .dpriv.eurosat import EuroSAT
from .dpriv.image_set import ImageSet, LabelledImage
from .dpriv.mnist import MNIST
from .dpriv.nih import NIHChestXray14
from .gqa import GQA
from .leaks import Leak, find_leaks
from .okvqa import OKVQA
from .path_vqa import PathVQA
from .report import DataReport
from .sample import VQASample
from .slake import SLAKE
from .tree import MissingFileError
from .vqa_rad import VQARAD
from .vqav2 import VQAv2

VQA_SETS: tuple[type[VQADataset], ...] = (
    GQA, OKVQA, VQAv2, SLAKE, VQARAD, PathVQA, Conversations,
)  # fmt: skip
DOCUMENT_SETS: tuple[type[VQADataset], ...] = (DocVQA, MPDocVQA, DUDE, PFLDocVQA)
IMAGE_SETS: tuple[type[ImageSet], ...] = (CelebA, NIHChestXray14, EuroSAT, MNIST, CIFAR10)


@dataclass(frozen=True)
class DataCheck:
    """What a folder holds.

    Args:
        dataset: Name of the set.
        root: The folder or archive.
        reports: The account of every split that is there.
        absent: The other splits, and why each is not there.
        needed: The splits that must be there: those that ``qpriv fit`` and ``test`` read.
        leaks: What the splits share.
        broken: Images that cannot be decoded, with the reason.
    """

    dataset: str
    root: str
    reports: tuple[DataReport, ...]
    absent: dict[str, str]
    needed: tuple[str, ...]
    leaks: tuple[Leak, ...]
    broken: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Return whether every split has rows, all of them good, and all images.

        Every split that is needed must be there. Leaks are in the release itself.
        """
        lacking = any(
            report.missing_images or report.bad_rows or not report.kept for report in self.reports
        )
        return not (lacking or self.broken or set(self.needed) & set(self.absent))

    def as_dict(self) -> dict[str, Any]:
        """Return the check as plain types, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain | {"is_sound": self.is_sound}

    def __str__(self) -> str:
        """Return the check as text."""
        lines = [f"{self.dataset} in {self.root}", *map(str, self.reports)]
        for split, why in self.absent.items():
            advice = "; it is needed, unless --split names others" if split in self.needed else ""
            lines.append(f"{self.dataset}/{split}: not there ({why}){advice}")
        lines += [f"leak: {leak}" for leak in self.leaks]
        lines += [f"broken: {reason}" for reason in self.broken]
        return "\n".join(lines)


def check(
    dataset: str,
    root: str | Path,
    decode_images: bool = True,
    group_field: str | None = None,
    splits: Sequence[str] = (),
    subset: str = "balanced",
) -> DataCheck:
    """Read all splits of a set and return what is there.

    Args:
        dataset: Name of the set, such as ``SLAKE`` or ``CelebA``.
        root: Folder or archive.
        decode_images: Also decode every image, which takes its time on big sets.
        group_field: Field of the records that names a row's group, where its name is unusual.
        splits: The splits to look at, all of which must be there. All of the set's where empty,
            of which those must be there that a fit and a test read.
        subset: Which questions of GQA: ``balanced`` or ``all``.

    Raises:
        ConfigError: If there is no such set, or its files cannot name groups.
        DataError: If no split is there, or a file is broken.
    """
    makers: dict[str, type[VQADataset] | type[ImageSet]] = {}
    makers |= {one.name: one for one in (*VQA_SETS, *DOCUMENT_SETS)}
    makers |= {one.name: one for one in IMAGE_SETS}
    if dataset not in makers:
        raise ConfigError(
            f"no data set {dataset!r}", where="--dataset", remedy=f"use {', '.join(makers)}"
        )
    maker = makers[dataset]
    needed, wanted = _needed(maker, splits), splits or maker.splits
    read = _read(partial(maker, **_options(maker, group_field, subset)), wanted, root)
    return _checked(dataset, root, *read, needed, decode_images)


def _options(
    maker: type[VQADataset] | type[ImageSet], group_field: str | None, subset: str
) -> dict[str, Any]:
    """Return what a reader is told: to go on after bad rows, so that all of them are found."""
    if issubclass(maker, ImageSet):
        return {"group_field": group_field}
    options: dict[str, Any] = {"group_field": group_field, "on_bad_row": "drop"}
    # the union of both languages of SLAKE is what leaks
    own = {SLAKE: {"lang": "all"}, GQA: {"subset": subset}}
    return options | own.get(maker, {})


def _needed(maker: type[VQADataset] | type[ImageSet], named: Sequence[str]) -> tuple[str, ...]:
    """Return the splits that must be there: those that were named, or else those in use.

    Raises:
        DataError: If the set has no split of a name.
    """
    for name in named:
        maker.check_split(name)
    if named:
        return tuple(named)
    if issubclass(maker, ImageSet):
        return maker.splits
    return tuple({"train": 0, maker.val_split or "train": 0, maker.test_split: 0})


def _read(
    make: Callable[[str | Path, str], VQADataset | ImageSet],
    names: Iterable[str],
    root: str | Path,
) -> tuple[dict[str, VQADataset | ImageSet], dict[str, str]]:
    splits: dict[str, VQADataset | ImageSet] = {}
    absent: dict[str, str] = {}
    first: MissingFileError | None = None
    for name in names:
        try:
            splits[name] = make(root, name)
        except MissingFileError as error:
            absent[name] = error.what
            first = first or error
    if first is not None and not splits:
        raise first
    return splits, absent


def _checked(
    dataset: str,
    root: str | Path,
    splits: dict[str, VQADataset | ImageSet],
    absent: dict[str, str],
    needed: tuple[str, ...],
    decode_images: bool,
) -> DataCheck:
    leaks = find_leaks({name: split.samples for name, split in splits.items()})
    _compare_groups([split.report for split in splits.values()])
    broken: list[str] = []
    for name, split in splits.items():
        split.report.shared_groups = {
            leak.one: leak.groups for leak in leaks if leak.other == name and leak.lang == "all"
        }
        split.report.bare_golds = sum(map(_is_bare, split.samples))
        if decode_images:
            found = broken_images(split.samples)
            split.report.broken_images = len(found)
            broken += map(str, found.values())
    reports = tuple(split.report for split in splits.values())
    return DataCheck(dataset, str(root), reports, absent, needed, tuple(leaks), tuple(broken))


def _is_bare(sample: VQASample | LabelledImage) -> bool:
    return isinstance(sample, VQASample) and bool(sample.answer) and says_nothing(sample.answer)


def _compare_groups(reports: Sequence[DataReport]) -> None:
    """Note where a field groups the rows of some splits, and none those of others."""
    by_field = [report for report in reports if set(report.grouped_by) - {report.default_group}]
    for report in reports:
        if by_field and report.kept and report not in by_field:
            report.note(
                f"no row names a group, those of {by_field[0].split} do: what both splits share "
                f"is seen by {report.default_group} alone"
            )
