"""MNIST: handwritten digits in the idx format, packed or not."""

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from qpriv.datasets.files import DataFile, read_data
from qpriv.datasets.folds import assign_groups
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import ArrayImage
from qpriv.datasets.tree import FileTree
from qpriv.errors import DataError

from .image_set import ImageSet, LabelledImage

_UNSIGNED_BYTES = 8  # the idx format's code for uint8, the only type MNIST has
_HIGHEST = 9
_SHARES = {"val": 0.1, "train": 0.9}
_REMEDY = "get the four idx files of MNIST, packed (.gz) or not"


class MNIST(ImageSet):
    """MNIST as idx files, raw or ``.gz``; ``val`` is carved from the training file.

    Reference: LeCun et al., "Gradient-based learning applied to document recognition", 1998.

    Args:
        root: Folder or archive with ``train-images-idx3-ubyte`` and the like.
        split: ``train``, ``val`` (carved) or ``test``.
        cap: Largest number of images; all where None.
        seed: Seed of the draw.

    Raises:
        DataError: If a file is missing or broken, or images and labels differ in number.
    """

    name = "MNIST"
    sensitive = False

    @staticmethod
    def read(
        tree: FileTree, split: str, report: DataReport, group_field: str | None = None
    ) -> Iterator[LabelledImage]:
        """Yield the images of a split."""
        part = "t10k" if split == "test" else "train"
        pixels_file, labels_file = (
            _file(tree, f"{part}-images", 3),
            _file(tree, f"{part}-labels", 1),
        )
        pixels, labels = read_idx(pixels_file, 3), read_idx(labels_file, 1)
        report.files = (pixels_file.name, labels_file.name)
        if len(pixels) != len(labels):
            raise DataError(
                f"{len(pixels)} images and {len(labels)} labels",
                where=f"{pixels_file.name}, {labels_file.name}",
                remedy="the two files are of different releases: download both again",
            )
        if (highest := int(labels.max(initial=0))) > _HIGHEST:
            raise DataError(f"label {highest}", where=labels_file.name, remedy=_REMEDY)
        names = [f"{part}-{index}" for index in range(len(pixels))]
        split_of = assign_groups(names, {"test": 1.0} if part == "t10k" else _SHARES, 0, "MNIST")
        for name, picture, label in zip(names, pixels, labels, strict=True):
            report.read += 1
            if split_of[name] != split:
                report.drop(f"belongs to {split_of[name]}")
                continue
            yield LabelledImage(
                dataset="MNIST",
                split=split,
                image_id=name,
                group_id=f"mnist/{name}",
                image=ArrayImage(np.broadcast_to(picture[..., None], (*picture.shape, 3))),
                labels=(str(label),),
                meta={"class_index": int(label)},
            )


def _file(tree: FileTree, stem: str, dimensions: int) -> DataFile:
    # some copies write a full stop before "idx"
    kind = f"idx{dimensions}-ubyte"
    return tree.require(f"{stem}-{kind}", f"{stem}.{kind}", remedy=_REMEDY)


def read_idx(file: DataFile, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of an idx file: magic number, sizes as big-endian uint32, then bytes.

    Raises:
        DataError: If it is not such a file of so many dimensions, or ends early.
    """
    data = read_data(file)
    head = 4 + 4 * dimensions
    magic = _UNSIGNED_BYTES << 8 | dimensions
    if len(data) < head or int.from_bytes(data[:4], "big") != magic:
        raise DataError(
            f"not an idx file of {dimensions} dimensions (magic number {magic})",
            where=file.name,
            remedy=_REMEDY,
        )
    shape = struct.unpack(f">{dimensions}I", data[4:head])
    count = int(np.prod(shape, dtype=np.int64))
    if len(data) - head != count:
        raise DataError(
            f"{len(data) - head} bytes of data instead of {count}: the file ends early",
            where=file.name,
            remedy="download it again",
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)
