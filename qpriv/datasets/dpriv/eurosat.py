"""EuroSAT: Sentinel-2 tiles of ten kinds of land."""

from collections.abc import Iterator

from qpriv.datasets.folds import assign_groups
from qpriv.datasets.report import DataReport
from qpriv.datasets.tree import FileTree
from qpriv.errors import DataError

from .image_set import ImageSet, LabelledImage

CLASSES = (
    "AnnualCrop",
    "Forest",
    "HerbaceousVegetation",
    "Highway",
    "Industrial",
    "Pasture",
    "PermanentCrop",
    "Residential",
    "River",
    "SeaLake",
)
"""The ten classes; an index is a place in this list, whatever folders are there."""

_SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}


class EuroSAT(ImageSet):
    """EuroSAT in RGB: ``2750/<Class>/*.jpg``, or ``EuroSAT_RGB/<Class>/*.jpg``.

    The release has no splits: images are parted 80/10/10 by a hash of their name.

    Reference: Helber et al., "EuroSAT", JSTARS 2019. Licence: MIT; Copernicus terms.

    Args:
        root: Folder or archive.
        split: ``train``, ``val`` or ``test``.
        cap: Largest number of images; all where None.
        seed: Seed of the draw.

    Raises:
        DataError: If there are no class folders.
    """

    name = "EuroSAT"
    sensitive = True

    @staticmethod
    def read(
        tree: FileTree, split: str, report: DataReport, group_field: str | None = None
    ) -> Iterator[LabelledImage]:
        """Yield the images of a split."""
        images = tree.images(parts=2)
        named = [
            name for name in images if name.split("/")[0] in CLASSES and not _is_spectral(name)
        ]
        if not named:
            raise DataError(
                "no folder named after a class, such as AnnualCrop, with .jpg images",
                where=str(tree.root),
                remedy="unpack EuroSAT.zip (RGB) of https://zenodo.org/records/7711810",
            )
        absent = sorted(set(CLASSES) - {name.split("/")[0] for name in named})
        if absent:
            report.notes.append(f"no images of {', '.join(absent)}; class indices stay as they are")
        report.read = len(images)
        report.drop("not in a class folder, or multispectral .tif", len(images) - len(named))
        split_of = assign_groups(named, _SHARES, 0, "EuroSAT")
        for name in named:
            label = name.split("/")[0]
            if split_of[name] != split:
                report.drop(f"belongs to {split_of[name]}")
                continue
            yield LabelledImage(
                dataset="EuroSAT",
                split=split,
                image_id=name,
                group_id=f"eurosat/{name}",
                image=images.source(name, str(tree.root)),
                labels=(label,),
                meta={"class_index": CLASSES.index(label)},
            )


def _is_spectral(name: str) -> bool:
    return name.lower().endswith((".tif", ".tiff"))
