"""Tables that people edit: CSV as spreadsheets save it."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from qpriv.errors import DataError

from .encodings import read_text
from .files import DataFile, DiskFile


def read_table(path: Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a CSV file with their line numbers; missing cells are empty.

    Spreadsheets part cells by semicolons where the comma is the decimal mark, or by tabs, put a
    byte-order mark in front, and write UTF-16. All of these are understood.

    Args:
        path: The file.
        columns: The columns that must be there.

    Raises:
        DataError: If the file is missing, in another encoding than UTF-8 or UTF-16, or no
            table, or a column is missing.
    """
    header, *rows = read_cells(DiskFile(path)) or [(1, [])]
    names = [cell.strip() for cell in header[1]]
    if missing := [column for column in columns if column not in names]:
        raise DataError(
            f"no column {', '.join(missing)}",
            where=f"{path}, line 1",
            remedy=f"the first line must name them; it has {', '.join(names) or 'nothing'}",
        )
    return [
        (line, dict.fromkeys(names, "") | dict(zip(names, cells, strict=False)))
        for line, cells in rows
    ]


def delimiter_of(line: str) -> str:
    r"""Return what parts the cells of a table's first line: comma, semicolon or tab.

    >>> delimiter_of("id,question"), delimiter_of("id;question"), delimiter_of("id\tquestion")
    (',', ';', '\t')
    """
    return max(",;\t", key=line.count)  # the comma where none is there


def read_cells(file: DataFile) -> list[tuple[int, list[str]]]:
    """Return the lines of a CSV file that are not empty, with their numbers, cell by cell.

    Raises:
        DataError: If it is in another encoding than UTF-8 or UTF-16, or no table.
    """
    text = read_text(file)
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(first))
    try:
        return [(reader.line_num, row) for row in reader if any(row)]
    except csv.Error as error:
        raise DataError(
            f"not a table: {error}",
            where=f"{file.name}, line {reader.line_num}",
            remedy="save it as CSV again",
        ) from error
