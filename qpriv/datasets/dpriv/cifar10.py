"""CIFAR-10: small photographs in Python 2 pickles, read without running them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qpriv.datasets.files import DataFile
from qpriv.datasets.folds import assign_groups
from qpriv.datasets.pickles import NUMPY_ARRAY, load_pickle
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import ArrayImage
from qpriv.datasets.tree import FileTree
from qpriv.errors import DataError

from .image_set import ImageSet, LabelledImage

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_SIDE = 32
_SHARES = {"val": 0.1, "train": 0.9}
_REMEDY = "unpack cifar-10-python.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html"


class CIFAR10(ImageSet):
    """CIFAR-10's "python version"; ``val`` is carved from the five training batches.

    Reference: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

    Args:
        root: Folder or archive with ``data_batch_1`` to ``data_batch_5`` and ``test_batch``.
        split: ``train``, ``val`` (carved) or ``test``.
        cap: Largest number of images; all where None.
        seed: Seed of the draw.

    Raises:
        DataError: If a batch is missing or broken, or would run code.
    """

    name = "CIFAR10"
    sensitive = False

    @staticmethod
    def read(
        tree: FileTree, split: str, report: DataReport, group_field: str | None = None
    ) -> Iterator[LabelledImage]:
        """Yield the images of a split."""
        batches = ["test_batch"] if split == "test" else [f"data_batch_{n}" for n in range(1, 6)]
        for batch in batches:
            file = tree.require(batch, remedy=_REMEDY)
            report.files += (file.name,)
            pixels, labels = read_batch(file)
            names = [f"{batch}-{index}" for index in range(len(pixels))]
            split_of = assign_groups(
                names, {"test": 1.0} if split == "test" else _SHARES, 0, "CIFAR10"
            )
            for name, row, label in zip(names, pixels, labels, strict=True):
                report.read += 1
                if split_of[name] != split:
                    report.drop(f"belongs to {split_of[name]}")
                    continue
                yield LabelledImage(
                    dataset="CIFAR10",
                    split=split,
                    image_id=name,
                    group_id=f"cifar10/{name}",
                    image=ArrayImage(row),
                    labels=(CLASSES[label],),
                    meta={"class_index": label},
                )


def read_batch(file: DataFile) -> tuple[NDArray[np.uint8], list[int]]:
    """Return the pictures ``[N, 32, 32, 3]`` and class indices of a batch.

    Raises:
        DataError: If it is broken, would run code, or is not a batch of CIFAR-10.
    """
    content: dict[Any, Any] = load_pickle(file, dict, NUMPY_ARRAY)
    batch = {
        key.decode("latin1") if isinstance(key, bytes) else key: item
        for key, item in content.items()
    }
    data, labels = batch.get("data"), batch.get("labels")
    size = 3 * _SIDE * _SIDE
    if (
        not isinstance(data, np.ndarray)
        or data.dtype != np.uint8
        or data.shape != (len(data), size)
        or not isinstance(labels, list)
        or len(labels) != len(data)
        or not all(type(label) is int and 0 <= label < len(CLASSES) for label in labels)
    ):
        raise DataError(
            f"not a batch of CIFAR-10: uint8 data [N, {size}] and N labels below {len(CLASSES)}",
            where=file.name,
            remedy=_REMEDY,
        )
    planes = data.reshape(-1, 3, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels
