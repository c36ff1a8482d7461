"""`ImageSet`: a split of an image classification set, and what a parser needs to make one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch.utils.data import Dataset

from qpriv.datasets.folds import sample_by_group
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import ImageSource, MissingImage
from qpriv.datasets.tree import FileTree
from qpriv.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledImage:
    """An image with its labels.

    Args:
        dataset: Name of the set.
        split: Name of the split.
        image_id: Id of the image, unique in set and split.
        group_id: What must never straddle two splits: the patient or person where known.
        image: Where the pixels come from.
        labels: The classes, findings or attributes it has.
        meta: Further fields of the release.
    """

    dataset: str
    split: str
    image_id: str
    group_id: str
    image: ImageSource
    labels: tuple[str, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)


class ImageSet(Dataset[LabelledImage], ABC):
    """One split of an image set, capped by group.

    Args:
        root: Folder or archive of the release.
        split: Name of the split, one of ``splits``.
        cap: Largest number of images, drawn by group; all where None.
        seed: Seed of the draw.
        group_field: Field that names the group of an image, such as the person; the release's own
            where None.

    Raises:
        ConfigError: If the set's files cannot carry the ``group_field``.
        DataError: If the split is unknown, a file is missing or broken, the ``group_field`` is not
            in it, or no image is left.
    """

    name: ClassVar[str]
    """Name of the set."""

    sensitive: ClassVar[bool]
    """Whether its images are positive in D_priv."""

    splits: ClassVar[tuple[str, ...]] = ("train", "val", "test")
    """Names of the splits."""

    names_groups: ClassVar[bool] = False
    """Whether its files have a place for the name of a group: a column, a person's number."""

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        cap: int | None = None,
        seed: int = 0,
        group_field: str | None = None,
    ) -> None:
        self.check_split(split)
        if group_field is not None and not self.names_groups:
            raise ConfigError(
                f"{self.name} cannot name groups: its files have no place for persons",
                where="group_field",
                remedy="leave it out; an image is a group",
            )
        report = DataReport(self.name, split)
        found = list(self.read(FileTree(root, report), split, report, group_field))
        self.split, self.report = split, report
        rows = ((image.group_id, image) for image in found)
        self.samples: Sequence[LabelledImage] = sample_by_group(rows, cap, seed)
        report.drop(f"beyond the cap of {cap}, drawn by group", len(found) - len(self.samples))
        report.kept = report.images = len(self.samples)
        report.groups = len({image.group_id for image in self.samples})
        lacking = (one for one in self.samples if isinstance(one.image, MissingImage))
        report.lack({one.image_id: str(one.image) for one in lacking})
        if not found:
            raise DataError(
                f"no image of split {split!r}", where=self.name, remedy="check the split files"
            )

    @staticmethod
    @abstractmethod
    def read(
        tree: FileTree, split: str, report: DataReport, group_field: str | None = None
    ) -> Iterator[LabelledImage]:
        """Yield the images of a split, and account for the others.

        Args:
            tree: The release.
            split: Name of the split.
            report: Counts what is read, dropped and repaired.
            group_field: Field that names groups; the release's own where None.

        Raises:
            DataError: If a file is missing or broken.
        """

    @classmethod
    def check_split(cls, split: str) -> None:
        """Check that the set has a split of this name.

        Raises:
            DataError: If it has not; lists those it has.
        """
        if split not in cls.splits:
            offered = ", ".join(cls.splits)
            raise DataError(f"unknown split {split!r}", where=cls.name, remedy=f"use {offered}")

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.samples)

    def __getitem__(self, index: int) -> LabelledImage:
        """Return an image with its labels; the pixels stay unread."""
        return self.samples[index]
