"""Cells of parquet files in any order: a row group is unpacked twice at most, in bounded memory.

A cell cannot be read alone: its row group must be unpacked, of which a shuffled epoch would ask
for a cell at a time. A group that is asked for out of order is therefore laid out in a file as Arrow
keeps it in memory, and mapped; the system holds as much of it as it can. Reading in order, however
often, writes nothing.
"""

import hashlib
import io
import logging
import os
import tempfile
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from qpriv.errors import DataError, reason

from .files import DataFile, DiskFile, ZipMember, refuse_broken_download
from .temporary import run_folder
from .unpacking import largest, too_large

SETTING = "QPRIV_ARROW_FOLDER"
"""Environment variable with the folder of what is laid out; one that the run removes if unset."""

# how pyarrow stumbles over damaged files; a string that is no UTF-8 is a ValueError
BROKEN = (
    pa.ArrowException, OSError, ValueError, LookupError, MemoryError, ArithmeticError, TypeError,
    RuntimeError,
)  # fmt: skip
_HELD = 2  # row groups that a process holds in memory
_MAPPED = 64  # row groups that a process maps at a time
_ROWS = 64  # rows laid out at a time
logger = logging.getLogger(__name__)
_asked: set[str] = set()  # row groups that were unpacked before
_latest: dict[tuple[str, str], int] = {}  # the row group that was unpacked last, by file and column


def cell(file: DataFile, group: int, row: int, column: str) -> Any:  # noqa: ANN401
    """Return what a cell holds, as plain types.

    Raises:
        DataError: If the file is damaged there.
    """
    try:
        return _column(file, group, column)[row].as_py()
    except BROKEN as error:
        raise damaged(file, error) from error


def open_parquet(file: DataFile) -> pq.ParquetFile:
    """Return a parquet file, opened.

    Raises:
        DataError: If it is broken, or not parquet, or there is no folder to lay its cells out in.
    """
    _folder()  # made before there are processes that share it
    source = file.path if isinstance(file, DiskFile) else io.BytesIO(file.read())
    try:
        return pq.ParquetFile(source)
    except BROKEN as error:
        with file.open() as stream:
            refuse_broken_download(stream.read(512), file.name)
        raise damaged(file, error) from error


def check_size(parquet: pq.ParquetFile, file: DataFile, group: int, columns: Sequence[str]) -> None:
    """Check that columns of a row group do not unpack to more than the limit.

    Raises:
        DataError: If one does.
    """
    chunks = parquet.metadata.row_group(group)
    for chunk in map(chunks.column, range(chunks.num_columns)):
        limit = largest(chunk.total_compressed_size)
        if chunk.path_in_schema.split(".")[0] in columns and chunk.total_uncompressed_size > limit:
            raise too_large(f"{file.name}, row group {group}, {chunk.path_in_schema}", limit)


def damaged(file: DataFile, error: Exception) -> DataError:
    """Return the error of a file that pyarrow cannot read."""
    return DataError(
        f"not a readable parquet file: {reason(error)}", where=file.name, remedy="download it again"
    )


def _column(file: DataFile, group: int, column: str) -> pa.ChunkedArray:
    """Return a column of a row group: mapped where it was laid out, else out of the file."""
    key = _key(file, group, column)
    if (path := _folder() / f"{key}.arrow").exists():
        return _mapped(path)
    return _unpacked(file, group, column, key)


def _key(file: DataFile, group: int, column: str) -> str:
    """Return a name for a column of a row group of a file as it is now."""
    place = file.path if isinstance(file, DiskFile) else cast(ZipMember, file).archive
    stamp = place.stat()
    told = (str(place.absolute()), file.name, stamp.st_size, stamp.st_mtime_ns, group, column)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:32]


@lru_cache(maxsize=_HELD)
def _unpacked(file: DataFile, group: int, column: str, key: str) -> pa.ChunkedArray:
    parquet = open_parquet(file)
    check_size(parquet, file, group, [column])
    if _is_out_of_order(file, group, column, key) or isinstance(file, ZipMember):
        # a member of an archive is unpacked as a whole, whatever is asked of it
        groups = range(parquet.num_row_groups) if isinstance(file, ZipMember) else (group,)
        if all(_laid_out(parquet, one, column, _key(file, one, column)) for one in groups):
            return _mapped(_folder() / f"{key}.arrow")
    return parquet.read_row_group(group, columns=[column]).column(0)


def _is_out_of_order(file: DataFile, group: int, column: str, key: str) -> bool:
    """Return whether a row group is asked for otherwise than by a reader that goes through all."""
    latest = _latest.get((file.name, column), -1)
    again = key in _asked and group not in (0, latest + 1)
    _latest[file.name, column] = group
    _asked.add(key)
    return again or 0 < group < latest


def _laid_out(parquet: pq.ParquetFile, group: int, column: str, key: str) -> bool:
    """Write a column of a row group, piece by piece; return whether there was room for it."""
    name = ""
    try:
        handle, name = tempfile.mkstemp(dir=_folder(), prefix=key)
        with os.fdopen(handle, "wb") as file:
            field = parquet.schema_arrow.field(column)
            with pa.ipc.new_file(file, pa.schema([field])) as writer:
                for batch in parquet.iter_batches(_ROWS, row_groups=[group], columns=[column]):
                    writer.write_batch(batch)
        Path(name).replace(_folder() / f"{key}.arrow")  # whole or not at all
    except OSError as error:
        if name:
            Path(name).unlink(missing_ok=True)
        _warn(str(_folder()), error.strerror or str(error))
        return False
    return True


@cache
def _warn(folder: str, why: str) -> None:
    logger.warning(
        "pictures of parquet files cannot be laid out in %s (%s), so that every shuffled one costs "
        "a row group: set %s, or TMPDIR, to a folder with room",
        folder,
        why,
        SETTING,
    )


@lru_cache(maxsize=_MAPPED)
def _mapped(path: Path) -> pa.ChunkedArray:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all().column(0)


def _folder() -> Path:
    """Return the folder of what is laid out, the same one in all processes that this one starts.

    Raises:
        DataError: If it cannot be made.
    """
    return _made(os.environ.get(SETTING) or _own())


@cache
def _own() -> str:
    """Return a new folder that nobody else may read, and tell the processes that this one starts."""
    try:
        os.environ[SETTING] = str(run_folder("qpriv-arrow-"))
    except OSError as error:
        raise _no_folder(tempfile.gettempdir(), error) from error
    return os.environ[SETTING]


@cache
def _made(folder: str) -> Path:
    path = Path(folder).expanduser()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _no_folder(folder, error) from error
    return path


def _no_folder(folder: str, error: OSError) -> DataError:
    return DataError(
        f"no folder for the pictures of parquet files: {reason(error)}",
        where=folder,
        remedy=f"set {SETTING}, or TMPDIR, to a folder that can be written to",
    )
