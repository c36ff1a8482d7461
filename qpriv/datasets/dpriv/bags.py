"""`DPriv`: the positive and the negative bag of the sensitivity teacher, at one common size."""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image
from torch.utils.data import Dataset

from qpriv.datasets.bags import BagSample
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import ImageSource
from qpriv.errors import DataError

from .image_set import ImageSet, LabelledImage

COMMON_SIDE = 32
"""Side of CIFAR-10's images. The sets come in 28 to 1024 pixels, negatives small and positives
large: at their own sizes, resolution alone would tell the bags apart, and a teacher would learn
sharpness instead of content."""


@dataclass(frozen=True, slots=True)
class ResizedImage:
    """An image brought to a square of the common size, its longer side cropped in the middle."""

    source: ImageSource
    side: int

    def load(self) -> Image.Image:
        """Return the image in mode RGB, ``side`` x ``side``.

        Raises:
            DataError: If the image is missing or broken.
        """
        image = self.source.load()
        short = min(image.size)
        left, top = (image.width - short) // 2, (image.height - short) // 2
        square = (left, top, left + short, top + short)
        size = (self.side, self.side)
        return image.crop(square).resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)


class DPriv(Dataset[BagSample]):
    """Images of several sets, labelled by whether their set is sensitive.

    Args:
        sets: The image sets, all of the same split; some sensitive, some not.
        side: Every image is brought to ``side`` x ``side`` pixels first.

    Raises:
        DataError: If a bag is empty, or the sets are of different splits.
    """

    def __init__(self, sets: Sequence[ImageSet], side: int = COMMON_SIDE) -> None:
        if {one.sensitive for one in sets} != {True, False} or len({one.split for one in sets}) > 1:
            raise DataError(
                "D_priv needs a sensitive and a harmless set of the same split",
                where=", ".join(f"{one.name}/{one.split}" for one in sets) or "no set",
                remedy="give CelebA, NIH or EuroSAT, and MNIST or CIFAR-10",
            )
        self.split, self.side = sets[0].split, side
        self.reports: tuple[DataReport, ...] = tuple(one.report for one in sets)
        self.originals: list[tuple[LabelledImage, bool]] = [
            (image, one.sensitive) for one in sets for image in one.samples
        ]
        """The images at their own size, and whether their set is sensitive."""
        self.samples = [_bag(image, sensitive, side) for image, sensitive in self.originals]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.samples)

    def __getitem__(self, index: int) -> BagSample:
        """Return a labelled image of the common size."""
        return self.samples[index]


def _bag(image: LabelledImage, sensitive: bool, side: int) -> BagSample:
    return BagSample(
        dataset="DPriv",
        split=image.split,
        image_id=f"{image.dataset}/{image.image_id}",
        source=image.dataset,
        image=ResizedImage(image.image, side),
        sensitive=sensitive,
        group_id=image.group_id,
    )
