"""Find pictures that cannot be decoded before a fit, and name those that fail later."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from PIL.Image import Image

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


class Keyed(Protocol):
    """A sample of any set that has a key."""

    @property
    def image(self) -> ImageSource:
        """Return where its pixels come from."""
        ...

    @property
    def key(self) -> str:
        """Return the sample's name, ``dataset/split/id``."""
        ...


@runtime_checkable
class Checkable(Protocol):
    """A picture that can be checked without decoding it, as a rule."""

    def check(self) -> None:
        """Check the header and the end of the file; decode it only if they look wrong.

        Raises:
            DataError: If it cannot be decoded; names the file.
        """
        ...


S = TypeVar("S", bound=HasImage)


def load_picture(sample: Keyed) -> Image:
    """Return the picture of a sample in mode RGB.

    Raises:
        DataError: If it is missing or broken; names the file and the record, and says how to find
            all such pictures and how to go on.
    """
    try:
        return sample.image.load()
    except DataError as error:
        raise DataError(
            error.what,
            where=f"{error.where}, record {sample.key}",
            remedy=f"{error.remedy}\n{_find_all(_release(sample.key))}; "
            "`on_bad_row: drop` leaves them out, and `--ckpt_path last` goes on with the fit",
        ) from error


def broken_images(samples: Iterable[HasImage]) -> dict[str, DataError]:
    """Decode every image once and return why those that are there cannot be, by image id."""
    return _failures(samples, lambda image: image.load())


def suspect_images(samples: Iterable[HasImage]) -> dict[str, DataError]:
    """Check the header and the end of every image file, and decode those that look wrong.

    It takes about a tenth of a millisecond a JPEG, PNG or GIF; the other formats have no mark at
    their end, and are decoded. It finds files that end early, that are no picture or in a format
    that is not decoded, and pictures with too many pixels; not damage in the middle of a file, nor
    that of pictures inside parquet files.

    Returns:
        Why images that are there cannot be decoded, by image id.
    """
    return _failures(samples, _check)


def decodable(samples: Sequence[S], report: DataReport) -> Sequence[S]:
    """Return the samples whose image can be decoded, and account for the others as bad rows.

    Every picture is decoded where bad rows are dropped. Where the report stops at bad rows,
    pictures are checked as by `suspect_images`.

    Raises:
        DataError: If there are others and the report stops at bad rows; tells the first.
    """
    if report.on_bad_row == "stop":
        _stop_at(suspect_images(samples), report)
        return samples
    broken = broken_images(samples)
    for sample in samples:
        if error := broken.get(sample.image_id):
            report.refuse(error)
    report.broken_images = len(broken)
    return [sample for sample in samples if sample.image_id not in broken]


def _failures(
    samples: Iterable[HasImage], look: Callable[[ImageSource], object]
) -> dict[str, DataError]:
    failures: dict[str, DataError] = {}
    for name, image in {sample.image_id: sample.image for sample in samples}.items():
        if not isinstance(image, MissingImage):
            try:
                look(image)
            except DataError as error:
                failures[name] = error
    return failures


def _check(image: ImageSource) -> None:
    if isinstance(image, Checkable):
        image.check()


def _stop_at(broken: dict[str, DataError], report: DataReport) -> None:
    for first in broken.values():
        more = f", as are {len(broken) - 1} others" if len(broken) > 1 else ""
        remedy = f"{first.remedy}\n{_find_all(report.dataset)}"  # a line is cut at its end
        report.refuse(DataError(f"{first.what}{more}", where=first.where, remedy=remedy))


def _release(key: str) -> str:
    """Return the set that a sample is from; keys of D_priv name it behind the split.

    >>> _release("SLAKE/train/7"), _release("DPriv/train/CelebA/000001.jpg")
    ('SLAKE', 'CelebA')
    """
    mixed, _, rest = key.partition("/")
    return rest.split("/")[1] if mixed == "DPriv" else mixed


def _find_all(dataset: str) -> str:
    return f"`qpriv data check --dataset {dataset} --root FOLDER` finds all such pictures"
