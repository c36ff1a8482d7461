"""NIH ChestX-ray14: frontal chest radiographs with text-mined findings."""

import re
from collections.abc import Iterator, Sequence

from qpriv.datasets.encodings import read_text
from qpriv.datasets.files import DataFile
from qpriv.datasets.folds import assign_groups
from qpriv.datasets.groups import group_name, joined
from qpriv.datasets.report import NAMED, DataReport
from qpriv.datasets.sample import Box
from qpriv.datasets.tables import read_cells
from qpriv.datasets.tree import FileTree
from qpriv.errors import DataError

from .image_set import ImageSet, LabelledImage

_TABLES = ("Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")
_REMEDY = "get Data_Entry_2017 and images_*.tar.gz from https://nihcc.app.box.com/v/ChestXray-NIHCC"
_COLUMNS = {
    "imageindex": "image",
    "findinglabels": "findings",
    "followup": "follow_up",
    "patientid": "patient",
    "patientage": "age",
    "patientgender": "sex",
    "patientsex": "sex",  # so headed since 2020
    "viewposition": "view",
}
_NEEDED = ("image", "findings", "patient")
_YEARS = {"Y": 1.0, "M": 1 / 12, "D": 1 / 365.25, "": 1.0}
_OLDEST = 120
_SHARES = {"train": 0.7, "val": 0.1, "test": 0.2}


class NIHChestXray14(ImageSet):
    """ChestX-ray14 with any of its table headers, by patient.

    ``test_list.txt`` and ``train_val_list.txt`` part patients as released; ``val`` is carved from
    the latter by patient. Without the lists, patients are parted 70/10/20.

    Use is free; NIH asks to name the NIH Clinical Center, link to the download site and cite
    Wang et al., "ChestX-ray8", CVPR 2017.

    Args:
        root: Folder or archive with ``Data_Entry_2017*.csv`` and ``images_*/images/*.png``.
        split: ``train``, ``val`` (carved) or ``test``.
        cap: Largest number of images, drawn by patient; all where None.
        seed: Seed of the draw.
        group_field: Column of the table that names the group of an image, such as a family; the
            patient where None or where a row has no value. A patient is in one group in any case.

    Raises:
        DataError: If a file is missing or broken, or the table has no such column.
    """

    name = "NIHChestXray14"
    sensitive = True
    names_groups = True

    @staticmethod
    def read(
        tree: FileTree, split: str, report: DataReport, group_field: str | None = None
    ) -> Iterator[LabelledImage]:
        """Yield the images of a split."""
        table = tree.require(*_TABLES, remedy=_REMEDY)
        report.files = (table.name,)
        report.default_group = "Patient ID"
        rows = _grouped(list(_table(table, group_field)))
        split_of = _splits(tree, rows, report)
        images, boxes = tree.images(), _boxes(tree)
        for row in rows:
            report.read += 1
            name = row["image"]
            where = split_of.get(name)
            if where != split:
                report.drop(f"belongs to {where}" if where else "in neither of the two lists")
                continue
            named = group_field if group_field and row["group"] else report.default_group
            report.grouped_by[named] += 1
            yield LabelledImage(
                dataset="NIHChestXray14",
                split=split,
                image_id=name,
                group_id=f"nih/{row['whole']}",
                image=images.source(name, table.name),
                labels=tuple(row["findings"].split("|")),
                meta={
                    "age": _age(row.get("age", ""), report),
                    "sex": row.get("sex", ""),
                    "view": row.get("view", ""),
                    "follow_up": row.get("follow_up", ""),
                    "boxes": boxes.get(name, ()),
                },
            )


def _grouped(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows with the group that each is in: patients of one group are one ``whole``."""
    own = [_group(row) for row in rows]
    names = joined(zip((row["patient"] for row in rows), own, strict=True))
    return [row | {"whole": names.get(one, one)} for row, one in zip(rows, own, strict=True)]


def _group(row: dict[str, str]) -> str:
    return f"{NAMED}{row['group']}" if row["group"] else f"patient {row['patient']}"


def _splits(tree: FileTree, rows: Sequence[dict[str, str]], report: DataReport) -> dict[str, str]:
    """Return the split of every image in the lists; of every image where there are none."""
    test, train = _listed(tree, "test_list.txt"), _listed(tree, "train_val_list.txt")
    if test is None or train is None:
        report.notes.append("no test_list.txt and train_val_list.txt: patients parted 70/10/20")
        by_group = assign_groups(map(_rank, rows), _SHARES, 0, "NIHChestXray14")
        return {row["image"]: by_group[_rank(row)] for row in rows}
    listed = [row for row in rows if row["image"] in train]
    shares = {"val": _SHARES["val"], "train": 1 - _SHARES["val"]}
    by_group = assign_groups(map(_rank, listed), shares, 0, "NIHChestXray14")
    return dict.fromkeys(test, "test") | {row["image"]: by_group[_rank(row)] for row in listed}


def _rank(row: dict[str, str]) -> str:
    """Return the name by which a row's group is drawn; a patient is drawn by number alone."""
    return row["whole"].removeprefix("patient ")


def _listed(tree: FileTree, name: str) -> frozenset[str] | None:
    if (file := tree.find(name)) is None:
        return None
    names = read_text(file).split()
    if wrong := next((word for word in names if not word.endswith(".png")), None):
        raise DataError(f"{wrong!r} is no image name", where=file.name, remedy=_REMEDY)
    return frozenset(names)


def _table(file: DataFile, group_field: str | None) -> Iterator[dict[str, str]]:
    """Yield the rows by our column names, whatever the header's blanks, commas and case.

    The column ``group`` holds the name of a group, "" where there is none.

    Two headings hold an unquoted comma, so a header has eleven cells, twelve where every line
    ends in a comma; only the cells before those two are read.
    """
    (_, header), *rows = read_cells(file) or [(1, [])]
    plain = [re.sub("[^a-z]", "", cell.lower()) for cell in header]
    places = {_COLUMNS[cell]: place for place, cell in enumerate(plain) if cell in _COLUMNS}
    if missing := [column for column in _NEEDED if column not in places]:
        raise DataError(
            f"no column for {', '.join(missing)}", where=f"{file.name}, line 1", remedy=_REMEDY
        )
    width = max(places.values()) + 1
    place = None if group_field is None else _place(header, group_field, file)
    if place is not None and place != places["patient"]:
        places["group"] = place
    for number, row in rows:
        if len(row) < max(width, places.get("group", 0) + 1):
            raise DataError(
                f"{len(row)} cells instead of {width} or more",
                where=f"{file.name}, line {number}",
                remedy="the file ends early: download it again",
            )
        cells = {column: row[place].strip() for column, place in places.items()}
        for column in ("patient", "group"):  # a table keeps zeros or loses them
            cells[column] = group_name(cells.get(column))
        if empty := [column for column in _NEEDED if not cells[column]]:
            raise DataError(
                f"no {', '.join(empty)}",
                where=f"{file.name}, line {number}",
                remedy="the file was edited: download it again",
            )
        yield cells


def _place(header: Sequence[str], column: str, file: DataFile) -> int:
    """Return the place of the column that names groups, from the end behind the two headings.

    Raises:
        DataError: If there is none.
    """
    names = [cell.strip() for cell in header]
    if column not in names:
        raise DataError(
            f"no column {column!r} to group by",
            where=f"{file.name}, line 1",
            remedy=f"name one of {', '.join(names)} as group_field, or leave it out",
        )
    place = names.index(column)
    return place - len(names) if any("[" in name for name in names[:place]) else place


def _age(text: str, report: DataReport) -> float | None:
    """Return an age in years; ``058Y``, ``006M`` and ``365D`` are those of the first release."""
    match = re.fullmatch(r"0*(\d+)([YMD]?)", text)
    if match is None:
        report.repaired[f"age {text!r} that is no number"] += 1
        return None
    years = int(match[1]) * _YEARS[match[2]]
    if years > _OLDEST:
        report.repaired[f"age above {_OLDEST} years, taken as unknown"] += 1
        return None
    return years


def _boxes(tree: FileTree) -> dict[str, tuple[tuple[str, Box], ...]]:
    """Return the finding boxes of the images that have some; the file writes *Infiltrate*."""
    boxes: dict[str, tuple[tuple[str, Box], ...]] = {}
    if (file := tree.find("BBox_List_2017.csv")) is None:
        return boxes
    for number, cells in read_cells(file):
        row = [cell.strip() for cell in cells]
        if number == 1 and row[0] == "Image Index":
            continue
        if (box := _box(row[2:6])) is None:
            raise DataError(
                f"not image, finding and the four numbers of a box: {', '.join(row[:6])}",
                where=f"{file.name}, line {number}",
                remedy="the file ends early or was edited: download it again, or remove it",
            )
        label = "Infiltration" if row[1] == "Infiltrate" else row[1]
        boxes[row[0]] = (*boxes.get(row[0], ()), (label, box))
    return boxes


def _box(sides: Sequence[str]) -> Box | None:
    """Return a box given by its corner and its size, None where that is not four numbers."""
    try:
        left, top, width, height = (float(side) for side in sides)
        return round(left), round(top), round(left + width), round(top + height)
    except (ValueError, OverflowError):
        return None
