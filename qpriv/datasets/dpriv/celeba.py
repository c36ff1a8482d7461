"""CelebA: aligned faces of celebrities with 40 attributes."""

from collections.abc import Iterator
from itertools import chain, islice

from qpriv.datasets.encodings import read_text
from qpriv.datasets.files import DataFile
from qpriv.datasets.groups import common_fields, group_name
from qpriv.datasets.image_index import ImageIndex
from qpriv.datasets.report import IMAGE, NAMED, DataReport
from qpriv.datasets.sample import ImageSource
from qpriv.datasets.tables import read_cells
from qpriv.datasets.tree import FileTree
from qpriv.errors import DataError

from .image_set import ImageSet, LabelledImage

NUM_ATTRIBUTES = 40
_PARTITIONS = {"0": "train", "1": "val", "2": "test"}
_VALUES = frozenset({"1", "-1", "0"})  # copies write 0 for -1
_REMEDY = (
    "accept CelebA's agreement at https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html and unpack "
    "img_align_celeba and the list files"
)


class CelebA(ImageSet):
    """CelebA as released (``.txt`` lists) or as on Kaggle (``.csv`` lists, nested image folder).

    Splits are the release's own partition. A group is what a 41st column of the attributes names
    (``group_field``), else a person (``identity_CelebA.txt``), else an image.

    CelebA may be used for non-commercial research only, and no part of it, nor anything derived
    from it, may be passed on.

    Reference: Liu et al., "Deep Learning Face Attributes in the Wild", ICCV 2015.

    Args:
        root: Folder or archive with the lists and the images.
        split: ``train``, ``val`` or ``test``.
        cap: Largest number of images, drawn by person; all where None.
        seed: Seed of the draw.
        group_field: Column of the attributes file that names the group of an image, beside the 40
            attributes, or ``identity``. A column with a common name is found where None, see
            `qpriv.datasets.groups`.

    Raises:
        DataError: If a file is missing or broken, or there is no such column.
    """

    name = "CelebA"
    sensitive = True
    names_groups = True

    @staticmethod
    def read(
        tree: FileTree, split: str, report: DataReport, group_field: str | None = None
    ) -> Iterator[LabelledImage]:
        """Yield the images of a split."""
        attributes = _list_file(tree, "list_attr_celeba")
        split_of = _partition(_list_file(tree, "list_eval_partition"))
        identity_of = _identities(tree)
        report.files = (attributes.name,)
        images, header = tree.images(), _header(attributes, report)
        column = _group_column(header, group_field, bool(identity_of), attributes)
        names = _attribute_names(header, column, attributes)
        for line, image_id, values in _rows(attributes, len(header)):
            report.read += 1
            group = group_name(values.pop(header.index(column))) if column else ""
            if strange := set(values) - _VALUES:
                raise _wrong(attributes, line, f"{sorted(strange)[0]!r} is no value: 1 or -1")
            where = split_of.get(image_id)
            if where != split:
                report.drop(f"belongs to {where}" if where else "not in the partition file")
                continue
            person = identity_of.get(image_id, "")
            own, field = _group(image_id, person, group, column)
            report.grouped_by[field] += 1
            yield LabelledImage(
                dataset="CelebA",
                split=split,
                image_id=image_id,
                group_id=f"celeba/{own}",
                image=_aligned(images, image_id, attributes.name),
                labels=tuple(
                    name for name, value in zip(names, values, strict=True) if value == "1"
                ),
                meta={"identity": int(person) if person else None},
            )


def _aligned(images: ImageIndex, name: str, where: str) -> ImageSource:
    """Return an image of the aligned ones: those in the wild have the same names."""
    return images.source(f"img_align_celeba/{name}", where)


def _identities(tree: FileTree) -> dict[str, str]:
    """Return who is in each image; nothing where the file is not there."""
    file = tree.find("identity_CelebA.txt", "identity_CelebA.csv")
    if file is None:
        return {}
    identity_of = {}
    for line, image_id, (person,) in _rows(file, 1):
        if not person.isdecimal():
            raise _wrong(file, line, f"{person!r} is no number of a person")
        identity_of[image_id] = str(int(person))
    if not identity_of:
        raise DataError("no line such as `000001.jpg 2880`", where=file.name, remedy=_REMEDY)
    return identity_of


def _partition(file: DataFile) -> dict[str, str]:
    """Return the split of every image."""
    split_of = {}
    for line, image_id, (number,) in _rows(file, 1):
        if number not in _PARTITIONS:
            raise _wrong(file, line, f"{number!r} is no part: {', '.join(_PARTITIONS)}")
        split_of[image_id] = _PARTITIONS[number]
    return split_of


def _list_file(tree: FileTree, stem: str) -> DataFile:
    return tree.require(f"{stem}.txt", f"{stem}.csv", remedy=_REMEDY)


def _lines(file: DataFile) -> Iterator[tuple[int, list[str]]]:
    """Yield the words of every line; a ``.csv`` is parted by commas, a ``.txt`` by blanks."""
    if ".csv" in file.name:
        yield from read_cells(file)
        return
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if words := line.split():
            yield number, words


def _group(image_id: str, person: str, group: str, column: str | None) -> tuple[str, str]:
    """Return the group of an image, and what it is grouped by."""
    if group and column:
        return f"{NAMED}{group}", column
    return (f"person {person}", "identity") if person else (image_id, IMAGE)


def _group_column(
    header: list[str], field: str | None, with_identities: bool, file: DataFile
) -> str | None:
    """Return the column that names groups, None where the identities or the images do.

    Raises:
        DataError: If the column that was asked for is not there, or is an attribute.
    """
    if field is None:
        return next((name for name in common_fields() if name in header), None)
    if field == "identity" and field not in header and with_identities:
        return None
    if field not in header or len(header) == NUM_ATTRIBUTES:
        raise DataError(
            f"no column {field!r} beside the {NUM_ATTRIBUTES} attributes to group by",
            where=file.name,
            remedy="add it as a 41st column, or leave group_field out to group by identity",
        )
    return field


def _header(file: DataFile, report: DataReport) -> list[str]:
    """Return the names of the columns behind that of the image."""
    (_, first), (_, second) = islice(chain(_lines(file), ((0, [""]), (0, []))), 2)
    if ".csv" in file.name:
        return [name.strip() for name in first[1:]]
    if len(second) >= NUM_ATTRIBUTES:
        report.notes.append(f"{file.name} announces {first[0]} images")
    return second


def _attribute_names(header: list[str], group: str | None, file: DataFile) -> list[str]:
    names = [name for name in header if name != group]
    if len(names) != NUM_ATTRIBUTES:
        raise DataError(
            f"{len(names)} attribute names instead of {NUM_ATTRIBUTES}",
            where=file.name,
            remedy=f"{_REMEDY}; a column more may name groups: give it as group_field",
        )
    return names


def _rows(file: DataFile, width: int) -> Iterator[tuple[int, str, list[str]]]:
    """Yield number, image and values of the lines that name an image; headers name none."""
    for number, words in _lines(file):
        if not words[0].lower().endswith((".jpg", ".png")):
            continue
        if len(words) != width + 1:
            raise _wrong(file, number, f"{len(words) - 1} values instead of {width}")
        yield number, words[0], [word.strip() for word in words[1:]]


def _wrong(file: DataFile, line: int, what: str) -> DataError:
    return DataError(
        what,
        where=f"{file.name}, line {line}",
        remedy="the file ends early or was edited: download it again",
    )
