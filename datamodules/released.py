"""`ReleasedVQA`: base of the modules over downloaded sets: caps, leaks, missing images, folds."""

import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from qpriv.datasets.base import VQADataset
from qpriv.datasets.decoding import decodable
from qpriv.datasets.folds import split_by_group
from qpriv.datasets.leaks import OnLeak, find_leaks, report_leaks
from qpriv.datasets.report import DataReport, OnBadRow
from qpriv.datasets.sample import MissingImage, VQASample
from qpriv.datasets.tree import MissingFileError
from qpriv.errors import ConfigError

from .base import Split, VQADataModule
from .missing import OnMissing, present
from .texts import samples_of


class RowOptions(TypedDict):
    """Row options that every reader takes."""

    group_field: str | None
    on_bad_row: OnBadRow


logger = logging.getLogger(__name__)

_CARVING_SEED = 0  # the same validation images in every run, whatever its seed
_MOST_FOR_VICTIM = 0.22
_FOLDS = ("members", "nonmembers", "population", "auxiliary")  # of the training images


@dataclass(eq=False, repr=False, kw_only=True)
class ReleasedVQA(VQADataModule):
    """A VQA set as people download it; a subclass names the reader.

    Every split's account is logged at `setup`, with the images that splits share. Attacks need
    people the victim never saw: with ``victim_share`` below 1 the training images are parted by
    group into the victim's, as many non-members, two and a half times as many for shadow models,
    and the rest for inverters.

    Args:
        root: Folder or ``.zip`` with the release or a mirror of it.
        cap: Largest number of questions of each split, drawn by image; all where None.
        group_field: Field of a record that names its group, which never straddles two splits or
            folds, such as the patient. A common name of such a field is found where empty; a
            record without one is grouped by its image.
        missing_images: ``error`` stops at `setup` where images are not there, ``drop`` goes on
            without their questions.
        on_bad_row: ``stop`` raises the error of a row that cannot be used: a null or an object for
            an answer, an id that stands twice, a picture that cannot be decoded. Before the fit
            begins, the header and the end of every picture file are checked. ``drop`` leaves such
            rows and those without a picture out, named and counted; every picture is decoded
            before the fit begins.
        on_leak: ``error`` stops where splits share images, ``warn`` logs how many.
        val_fraction: Share of the training images to validate on, for sets without a split of
            their own for it.
        test_split: The release's split to test and predict on, such as ``test`` for a server;
            the one with public answers where empty.
        victim_share: Share of the training images that the model is trained on, at most 0.22
            where attacks need the others; 1 trains on all and leaves none.
    """

    root: str = ""
    cap: int | None = None
    group_field: str = ""
    missing_images: OnMissing = "error"
    on_bad_row: OnBadRow = "stop"
    on_leak: OnLeak = "warn"
    val_fraction: float = 0.1
    test_split: str = ""
    victim_share: float = 1.0

    def __post_init__(self) -> None:
        """Check the settings before anything is read."""
        super().__post_init__()
        self._releases: dict[str, VQADataset] = {}
        if not 0 < self.val_fraction < 1:
            raise ConfigError(f"val_fraction is {self.val_fraction}", remedy="choose 0 to 1")
        if self.victim_share != 1 and not 0 < self.victim_share <= _MOST_FOR_VICTIM:
            raise ConfigError(
                f"victim_share is {self.victim_share}",
                remedy=f"choose 1, or at most {_MOST_FOR_VICTIM} to leave images for attacks",
            )

    @property
    def rows(self) -> RowOptions:
        """Return the row options for the reader."""
        return {"group_field": self.group_field or None, "on_bad_row": self.on_bad_row}

    @property
    def on_bad_text(self) -> OnBadRow:
        """Return what is done about a text that the model does not take: ``on_bad_row``."""
        return self.on_bad_row

    @abstractmethod
    def open(self, split: str) -> VQADataset:
        """Return a split by the release's own name."""

    def setup(self, stage: str) -> None:
        """Read the splits of a stage, log what was read, and compare the splits' images.

        Raises:
            DataError: If a split is missing, or images are and ``missing_images`` is ``error``,
                or splits share images and ``on_leak`` is ``error``.
        """
        super().setup(stage)
        self.compare(stage)

    def compare(self, stage: str) -> None:
        """Report the images that splits share: of all splits before a fit, else of those read.

        Raises:
            DataError: If there are any and ``on_leak`` is ``error``.
        """
        names: tuple[Split, ...] = ("train", "val", "test")
        splits = {name: self._compared(name) for name in names if self._is_compared(name, stage)}
        leaks = find_leaks({name: samples for name, samples in splits.items() if samples})
        report_leaks(leaks, self.source.name, self.on_leak)

    def dataset(self, split: Split) -> VQADataset:
        """Return a split without what belongs to others.

        Raises:
            DataError: If images are missing and ``missing_images`` is ``error``.
        """
        samples, report = self._parted(split)
        return VQADataset(split, self._usable(samples, report), report)

    def nonmembers(self) -> Sequence[VQASample]:
        """Return as many images' questions as the victim has, never trained on."""
        return self._attack_fold(1)

    def population(self) -> Sequence[VQASample]:
        """Return the attacker's own samples, twice the victim's images, for shadow models."""
        return self._attack_fold(2)

    def auxiliary(self) -> Sequence[VQASample]:
        """Return the attacker's images for inverters, one question each."""
        return _one_per_image(self._attack_fold(3))

    def targets(self) -> Sequence[VQASample]:
        """Return the test images, one question each, on which reconstruction is scored."""
        return _one_per_image(self.samples("test"))

    def target_questions(self) -> Sequence[VQASample]:
        """Return all questions about the images of `targets`."""
        return self.samples("test")

    def gallery(self) -> Sequence[VQASample]:
        """Return nothing: these releases do not say who is in an image."""
        return ()

    def _release(self, name: str) -> VQADataset:
        if name not in self._releases:
            self._releases[name] = self.open(name)
        return self._releases[name]

    def _name(self, split: Split) -> str | None:
        """Return the release's name of a split, None for one that is carved out of train."""
        named = {"train": "train", "val": self.source.val_split, "test": self.test_split}
        return named[split] or (self.source.test_split if split == "test" else None)

    def _parted(self, split: Split) -> tuple[Sequence[VQASample], DataReport]:
        name = self._name(split)
        release = self._release(name or "train")
        samples, report = release.samples, replace(release.report, split=split)
        report.dropped, report.notes = report.dropped.copy(), [*report.notes]
        if name not in (None, split):
            report.notes.append(f"the release calls this split {name}")
        if self.source.val_split is None and split != "test":
            shares = [1 - self.val_fraction, self.val_fraction]
            folds = split_by_group(samples, shares, _CARVING_SEED, "val")
            samples = folds[split == "val"]
            report.drop(
                "in the other part of the carved training split", report.kept - len(samples)
            )
        if split == "train" and self.victim_share < 1:
            whole, samples = samples, self._folds(samples)[0]
            report.drop("kept from the victim for attacks", len(whole) - len(samples))
        return samples, report

    def _folds(self, samples: Sequence[VQASample]) -> list[list[VQASample]]:
        share = self.victim_share
        # shadows need twice the victim's samples, and images have more of them or fewer
        shares = [share, share, 2.5 * share, 1 - 4.5 * share]
        return split_by_group(samples, shares, self.run_seed)

    def _attack_fold(self, number: int) -> Sequence[VQASample]:
        """Return a fold that is kept from the victim; its pictures are decoded once."""
        name = _FOLDS[number]
        if name not in self._datasets:
            self._datasets[name] = self._kept_from_victim(number)
        return samples_of(self.fitting(name, self._datasets[name]))

    def _kept_from_victim(self, number: int) -> VQADataset:
        if self.victim_share == 1:
            raise ConfigError(
                "every training image is the victim's, and none is left for attacks",
                where=f"{type(self).__name__}.victim_share",
                remedy=f"choose at most {_MOST_FOR_VICTIM}",
            )
        samples = self._release("train").samples
        if self.source.val_split is None:
            shares = [1 - self.val_fraction, self.val_fraction]
            samples = split_by_group(samples, shares, _CARVING_SEED, "val")[0]
        fold = self._folds(samples)[number]
        there = [sample for sample in fold if not isinstance(sample.image, MissingImage)]
        report = DataReport(self.source.name, "train", self.on_bad_row)
        kept = decodable(there, report)
        if report.bad:
            logger.warning(
                "%s: %d rows are left out, such as %s",
                _FOLDS[number],
                report.bad_rows,
                report.bad[-1],
            )
        return VQADataset("train", kept)

    def _usable(self, samples: Sequence[VQASample], report: DataReport) -> Sequence[VQASample]:
        """Return the samples whose picture is there and can be decoded."""
        missing = "drop" if self.on_bad_row == "drop" else self.missing_images
        return decodable(present(samples, report, missing, self.root), report)

    def _is_compared(self, split: Split, stage: str) -> bool:
        return stage == "fit" or split in self._datasets

    def _compared(self, split: Split) -> Sequence[VQASample]:
        """Return the samples of a split whose images are compared; none if it is not there."""
        try:
            return self._parted(split)[0]
        except MissingFileError as error:
            logger.info("%s/%s is not there: %s", self.source.name, split, error.what)
            return ()


def _one_per_image(samples: Sequence[VQASample]) -> list[VQASample]:
    first: dict[str, VQASample] = {}
    for sample in samples:
        first.setdefault(sample.image_id, sample)
    return list(first.values())
