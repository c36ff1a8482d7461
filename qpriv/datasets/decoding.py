"""Pictures that are there and cannot be decoded, found before a fit meets them in its middle."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from qpriv.errors import DataError

from .report import DataReport
from .sample import ImageSource, MissingImage


class HasImage(Protocol):
    """A sample of any set."""

    @property
    def image(self) -> ImageSource:
        """Return where its pixels come from."""
        ...

    @property
    def image_id(self) -> str:
        """Return the image's name."""
        ...


S = TypeVar("S", bound=HasImage)


def broken_images(samples: Iterable[HasImage]) -> dict[str, DataError]:
    """Decode every image once and return why those that are there cannot be, by image id."""
    broken: dict[str, DataError] = {}
    for name, image in {sample.image_id: sample.image for sample in samples}.items():
        if not isinstance(image, MissingImage):
            try:
                image.load()
            except DataError as error:
                broken[name] = error
    return broken


def decodable(samples: Sequence[S], report: DataReport) -> Sequence[S]:
    """Return the samples whose image can be decoded, and account for the others as bad rows.

    Raises:
        DataError: If there are others and the report stops at bad rows.
    """
    broken = broken_images(samples)
    for sample in samples:
        if error := broken.get(sample.image_id):
            report.refuse(error)
    report.broken_images = len(broken)
    return [sample for sample in samples if sample.image_id not in broken]
