"""Missing images: an error before training, or rows that are dropped and counted."""

from collections.abc import Sequence
from typing import Literal, TypeVar

from qpriv.datasets.decoding import HasImage
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import MissingImage
from qpriv.errors import DataError

OnMissing = Literal["error", "drop"]
S = TypeVar("S", bound=HasImage)


def present(
    samples: Sequence[S], report: DataReport, on_missing: OnMissing, root: str
) -> Sequence[S]:
    """Return the samples whose image is there, and account for the others.

    Args:
        samples: Samples of one split.
        report: Its account; the dropped ones are added.
        on_missing: What to do where an image is missing.
        root: Folder of the release, for messages.

    Raises:
        DataError: If an image is missing and ``on_missing`` is ``error``, or none is there.
    """
    there = [sample for sample in samples if not isinstance(sample.image, MissingImage)]
    missing = len(samples) - len(there)
    if missing and (on_missing == "error" or not there):
        first = next(x for x in samples if isinstance(x.image, MissingImage))
        other = ", or set `missing_images: drop`" if there else ""
        raise DataError(
            f"the images of {missing} of {len(samples)} samples are missing, "
            f"the first is {first.image_id!r}",
            where=f"{root}, {report.dataset}/{report.split}",
            remedy=f"unpack the rest of the release{other}",
        )
    report.drop("image is missing", missing)
    return there
