"""`DPriv`: the released image sets from which the sensitivity teacher learns."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from torch.utils.data import Dataset

from qpriv.datasets.bags import BagSample
from qpriv.datasets.decoding import decodable
from qpriv.datasets.dpriv import bags
from qpriv.datasets.dpriv.celeba import CelebA
from qpriv.datasets.dpriv.cifar10 import CIFAR10
from qpriv.datasets.dpriv.confound import measure_confound
from qpriv.datasets.dpriv.eurosat import EuroSAT
from qpriv.datasets.dpriv.image_set import ImageSet
from qpriv.datasets.dpriv.mnist import MNIST
from qpriv.datasets.dpriv.nih import NIHChestXray14
from qpriv.datasets.leaks import OnLeak, find_leaks, report_leaks
from qpriv.datasets.report import OnBadRow

from .base import Split, SplitDataModule
from .missing import OnMissing, present
from .texts import samples_of


@dataclass(eq=False, repr=False, kw_only=True)
class DPriv(SplitDataModule[BagSample]):
    """CelebA, ChestX-ray14 and EuroSAT against MNIST and CIFAR-10, by image-level label alone.

    All images pass through one size, and `setup` logs how far resolution and blur alone tell the
    bags apart. Sets without a folder are left out; at least one of each bag is needed.

    Args:
        celeba: Folder or ``.zip`` of CelebA; empty leaves it out.
        nih: The same of ChestX-ray14.
        eurosat: The same of EuroSAT.
        mnist: The same of MNIST.
        cifar10: The same of CIFAR-10.
        celeba_group_field: Column of CelebA's attributes that names the group of an image, such as
            the person; the identity file where empty.
        nih_group_field: Column of ChestX-ray14's table that names the group; the patient where
            empty.
        on_leak: ``error`` stops where splits share groups or images, ``warn`` logs how many.
        cap: Largest number of images of each set and split, drawn by person or patient.
        missing_images: ``error`` stops at `setup` where images are not there, ``drop`` goes on
            without them.
        on_bad_row: ``drop`` decodes every picture before the training and leaves those that cannot
            be, or that are missing, out, named and counted; ``stop`` checks the header and the end of
            every file, and raises the error of the first that cannot be decoded.
        side: Side of the common size in pixels.
    """

    celeba: str = ""
    nih: str = ""
    eurosat: str = ""
    mnist: str = ""
    cifar10: str = ""
    celeba_group_field: str = ""
    nih_group_field: str = ""
    on_leak: OnLeak = "warn"
    cap: int | None = 3000
    missing_images: OnMissing = "error"
    on_bad_row: OnBadRow = "stop"
    side: int = bags.COMMON_SIDE

    def setup(self, stage: str) -> None:
        """Read the splits of a stage, and report the groups that they share.

        Raises:
            DataError: If a split is missing, or splits share groups and ``on_leak`` is ``error``.
        """
        super().setup(stage)
        splits = {name: samples_of(split) for name, split in self._datasets.items()}
        report_leaks(find_leaks(splits), "DPriv", self.on_leak)

    def dataset(self, split: Split) -> bags.DPriv:
        """Return a split of both bags."""
        roots: dict[type[ImageSet], str] = {
            CelebA: self.celeba,
            NIHChestXray14: self.nih,
            EuroSAT: self.eurosat,
            MNIST: self.mnist,
            CIFAR10: self.cifar10,
        }
        sets = [self._set(kind, root, split) for kind, root in roots.items() if root]
        return bags.DPriv(sets, self.side)

    def accounts(self, whole: Dataset[BagSample], split: Split) -> Iterable[object]:
        """Return the reports of the sets, and how well blur alone separates the training bags."""
        both = cast(bags.DPriv, whole)
        yield from both.reports
        if split == "train":
            try:
                yield f"D_priv: {measure_confound(both, seed=self.run_seed)}"
            except ValueError as error:
                yield f"D_priv: not measured how far blur alone tells the bags apart, {error}"

    def _set(self, kind: type[ImageSet], root: str, split: Split) -> ImageSet:
        makers = {one.__name__: one for one in (CelebA, NIHChestXray14, EuroSAT, MNIST, CIFAR10)}
        fields = {"CelebA": self.celeba_group_field, "NIHChestXray14": self.nih_group_field}
        field = fields.get(kind.__name__) or None
        found = makers[kind.__name__](root, split, self.cap, self.run_seed, field)
        found.report.on_bad_row = self.on_bad_row
        missing = "drop" if self.on_bad_row == "drop" else self.missing_images
        found.samples = present(found.samples, found.report, missing, root)
        found.samples = decodable(found.samples, found.report)
        found.report.kept = len(found)
        return found
