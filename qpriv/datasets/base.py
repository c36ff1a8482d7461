"""`VQADataset`: a split of a VQA set as a sequence of typed samples, and its report."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from torch.utils.data import Dataset

from qpriv.errors import DataError

from .groups import joined
from .report import DataReport
from .sample import AnswerRule, VQASample

IMAGE_MARK = "<image>"
"""What stands for the picture in prompts, and must not stand in a question or an answer."""


class VQADataset(Dataset[VQASample]):
    """One split of a set. Images are read when asked for, never before.

    A subclass reads its files in ``__init__`` and hands over what it found. Groups that share an
    image are made one.

    Args:
        split: Name of the split, one of ``splits``.
        samples: The samples, in the order of the files.
        report: The account of what was read; counted from the samples where None.
    """

    name: ClassVar[str] = ""
    """Name of the set as in configurations and sample keys; the class name where empty."""

    splits: ClassVar[tuple[str, ...]] = ("train", "val", "test")
    """Names of the splits the set offers."""

    val_split: ClassVar[str | None] = "val"
    """The split to validate on while training; None where one must be carved from ``train``."""

    test_split: ClassVar[str] = "test"
    """The split with public answers on which figures are reported."""

    rule: ClassVar[AnswerRule] = "exact"
    """How answers are judged, see `qpriv.metrics.AnswerScores`."""

    def __init__(
        self, split: str, samples: Sequence[VQASample], report: DataReport | None = None
    ) -> None:
        self.split = split
        made = self.name or (samples[0].dataset if samples else "")
        self.report = report or DataReport.of(made, split, samples)
        self.samples = _whole(_plain(samples, self.report))
        self.report.check_rest()
        self.report.count(self.samples)

    def __init_subclass__(cls) -> None:
        """Name the set after its class unless it says otherwise."""
        super().__init_subclass__()
        cls.name = cls.__dict__.get("name") or cls.__name__

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
        """Return the number of samples."""
        return len(self.samples)

    def __getitem__(self, index: int) -> VQASample:
        """Return a sample; its image stays unread."""
        return self.samples[index]


def _plain(samples: Sequence[VQASample], report: DataReport) -> Sequence[VQASample]:
    """Return the samples without those whose text holds the mark of a prompt's picture."""
    marked = [
        one for one in samples if any(IMAGE_MARK in text for text in (one.question, one.answer))
    ]
    if not marked:
        return samples
    for one in marked:
        report.refuse(
            DataError(
                f"question or answer holds the text {IMAGE_MARK}",
                where=one.key,
                remedy="remove it: the prompt template places the image",
            )
        )
    left_out = set(map(id, marked))
    return [one for one in samples if id(one) not in left_out]


def _whole(samples: Sequence[VQASample]) -> Sequence[VQASample]:
    """Return samples of which those of one image are in one group."""
    names = joined(((one.dataset, one.image_id), one.group_id) for one in samples)
    if not names:
        return samples
    return [replace(one, group_id=names.get(one.group_id, one.group_id)) for one in samples]
