"""Parquet files as Hugging Face writes them, images included, read a row group at a time."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pyarrow.parquet as pq
from PIL import Image

from qpriv.errors import DataError

from .files import DataFile
from .images import decode_image
from .parquet_cells import BROKEN, cell, check_size, damaged, open_parquet
from .report import DataReport
from .shards import one_series, parquet_shards
from .tree import FileTree

T = TypeVar("T", bound=msgspec.Struct)

_ROWS = 1024  # rows decoded at a time


@dataclass(frozen=True, slots=True)
class ParquetImage:
    """An image in a cell of a parquet file: bytes, or a struct with them, as `datasets` writes."""

    file: DataFile
    group: int
    row: int
    column: str = "image"

    def load(self) -> Image.Image:
        """Return the image in mode RGB.

        Raises:
            DataError: If the cell holds no image.
        """
        return decode_image(self.data(), _place(self.file, self.group, self.row))

    def data(self) -> bytes:
        """Return the encoded image.

        Raises:
            DataError: If the file is damaged there, or the cell holds no picture.
        """
        held = cell(self.file, self.group, self.row, self.column)
        data = held.get("bytes") if isinstance(held, dict) else held
        if isinstance(data, bytes) and data:
            return data
        path = held.get("path") if isinstance(held, dict) else None
        raise DataError(
            f"no picture in the cell, only the path {path!r}" if path else "no picture in the cell",
            where=_place(self.file, self.group, self.row),
            remedy="save the mirror with its pictures embedded, or take its next version",
        )


def mirror_files(tree: FileTree, *stems: str, unless: Sequence[str] = ()) -> list[DataFile]:
    """Return the parquet files of a split, see `parquet_shards` and `one_series`.

    Args:
        tree: The mirror.
        stems: What the split may be called.
        unless: The release's own files of the split. Where one is there, it is read instead, as it
            has what mirrors leave out.

    Raises:
        DataError: If parts are missing or double, or several series differ.
    """
    shards = [shard for stem in stems for shard in parquet_shards(tree, stem)]
    if shards and (official := tree.find(*unless)):
        tree.report.note(f"{official.name} is read, and {shards[0].path} is not")
        return []
    return one_series(tree, shards, f"parquet files of {stems[0]}", _has_no_rows)


def _has_no_rows(file: DataFile) -> bool:
    return not open_parquet(file).metadata.num_rows


def iter_rows(
    file: DataFile,
    row: type[T],
    image: str | None = "image",
    report: DataReport | None = None,
) -> Iterator[tuple[int, int, T]]:
    """Yield row group, row in it, and the row as a struct; images stay in the file.

    Args:
        file: A parquet file.
        row: A `msgspec.Struct`, whose (encoded) field names are the columns that are read. Columns whose
            fields have defaults may be absent.
        image: The column of the images, which must be there; None where there need be none.
        report: Accounts for the rows of other types, where these are left out, see
            `DataReport.refuse`; without one the first of them is an error.

    Raises:
        DataError: If the file is broken, lacks a column, or a row has other types; names the file
            and the column or row.
    """
    parquet, account = open_parquet(file), report or DataReport("", "")
    present = set(parquet.schema_arrow.names)
    fields = msgspec.structs.fields(row)
    wanted = [field.encode_name for field in fields if field.required] + ([image] if image else [])
    if missing := [name for name in wanted if name not in present]:
        raise DataError(
            f"no column {', '.join(missing)}",
            where=file.name,
            remedy=f"expected a mirror of this set; the columns are {', '.join(sorted(present))}",
        )
    columns = [field.encode_name for field in fields if field.encode_name in present]
    for group in range(parquet.num_row_groups):
        index = 0
        for rows in _batches(parquet, file, group, columns):
            for values in rows:
                found = _convert(values, row, _place(file, group, index), account)
                if found is not None:
                    yield group, index, found
                index += 1


def content_id(file: DataFile, group: int, row: int, column: str = "image") -> str:
    """Return a name for an image that has none: 16 hexadecimal digits of its bytes' SHA-256."""
    return hashlib.sha256(ParquetImage(file, group, row, column).data()).hexdigest()[:16]


def _batches(
    parquet: pq.ParquetFile, file: DataFile, group: int, columns: Sequence[str]
) -> Iterator[list[dict[str, Any]]]:
    check_size(parquet, file, group, columns)
    try:
        for batch in parquet.iter_batches(_ROWS, row_groups=[group], columns=columns):
            yield batch.to_pylist()
    except BROKEN as error:
        raise damaged(file, error) from error


def _convert(values: dict[str, Any], row: type[T], where: str, report: DataReport) -> T | None:
    """Return a row as a struct, None where it has other types and is left out."""
    try:
        return msgspec.convert(values, row)
    except msgspec.ValidationError as error:
        remedy = "expected a mirror of this set"
        report.refuse(DataError(f"unexpected row: {error}", where=where, remedy=remedy))
        report.read += 1
        return None


def _place(file: DataFile, group: int, row: int) -> str:
    return f"{file.name}, row group {group}, row {row}"
