"""Records in a table: CSV or TSV whose first line names the fields."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec

from qpriv.errors import DataError

from .encodings import not_utf8
from .json_lines import lines_of
from .json_stream import BLANKS, Refused
from .report import DataReport
from .tables import delimiter_of

T = TypeVar("T", bound=msgspec.Struct)
Cell = Callable[[str], object]
"""What makes the value of a field out of the text of a cell."""

_LONGEST = 120  # characters of a header that messages quote


def header_of(head: bytes) -> list[str]:
    r"""Return the names of a table's columns, nothing where a file is no table.

    Args:
        head: The first bytes of the file, with its whole first line.

    >>> header_of(b"id;question\n1;why?"), header_of(b'{"id": 1,"question": "why?"}')
    (['id', 'question'], [])
    """
    # a tab in front parts a first column without a name, as of pandas, from the others
    line = next((line for line in head.split(b"\n") if line.strip(BLANKS)), b"").rstrip(b"\r")
    if line.lstrip(BLANKS).startswith((b"{", b"[")):
        return []
    text = line.decode(errors="replace")  # its first line that is not UTF-8 is told as of any table
    try:
        names = next(csv.reader([text], delimiter=delimiter_of(text), strict=True), [])
    except csv.Error:
        return []
    names = [name.strip() for name in names]
    return names if len(names) > 1 and all(name.isprintable() for name in names) else []


def iter_table(
    blocks: Iterable[bytes],
    name: str,
    record: type[T],
    header: Sequence[str],
    needed: Sequence[str],
    report: DataReport,
    refused: Refused,
) -> Iterator[tuple[str, T]]:
    """Yield the records of a table, each with its position.

    An empty cell is a field that is left out. A cell of a field that holds a list or an object is
    JSON, and so is one of a field that takes no text, such as a number.

    Args:
        blocks: The file in UTF-8.
        name: Its name, for messages.
        record: The type of a record.
        header: The names of the columns.
        needed: Fields with a default that must be there nonetheless.
        report: Takes a note that the file is a table.
        refused: Is called with each row that has not the declared fields, or not a cell a column.

    Raises:
        DataError: If a column is missing or stands twice, or the file is no table further on.
    """
    _check_columns(header, record, needed, name)
    report.note(f"{name} is a table with the columns {_listed(header)}, and read as such")
    cells, due = (
        _cells(record),
        {f.encode_name for f in msgspec.structs.fields(record) if f.required},
    )
    rows = _rows(blocks, name)
    next(rows, None)  # the header
    for position, (line, row) in enumerate(rows):
        try:
            if len(row) != len(header):
                raise ValueError(f"{len(row)} cells in a table of {len(header)} columns")
            named = zip(header, row, strict=True)
            given = {key: text for key, text in named if key in cells and (text or key in due)}
            values = {key: _value(key, text, cells[key]) for key, text in given.items()}
            found = msgspec.convert(values, record)
        except ValueError as error:  # also of msgspec
            wrong = DataError(
                f"unexpected row: {error}",
                where=f"{name}, line {line}",
                remedy="mend it there: text with commas or quotes stands in quotes, lists are JSON",
            )
            refused(msgspec.json.encode(dict(zip(header, row, strict=False))), wrong)
        else:
            yield str(position), found


def _check_columns(
    header: Sequence[str], record: type[msgspec.Struct], needed: Sequence[str], name: str
) -> None:
    due = [field.encode_name for field in msgspec.structs.fields(record) if field.required]
    due += [field for field in needed if field not in due]
    if any(field not in header for field in due) or len(set(header)) < len(header):
        raise DataError(
            f"a CSV or TSV table with the columns {_listed(header)}, where JSON records with "
            f"{', '.join(due)} are wanted",
            where=f"{name}, line 1",
            remedy="name its columns so, each once, or write the records as a JSON list",
        )


def _listed(header: Sequence[str]) -> str:
    """Return the names of columns, of very many the first; no file is quoted at length."""
    names = ", ".join(header)
    return names if len(names) <= _LONGEST else f"{names[:_LONGEST]}..."


def _rows(blocks: Iterable[bytes], name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty with the numbers of their last lines."""
    lines = _text_lines(blocks, name)
    begin = list[str]()  # to the header, which tells what parts cells
    for line in lines:
        begin.append(line)
        if line.strip():
            break
    delimiter = delimiter_of("".join(begin[-1:]))
    reader = csv.reader(chain(begin, lines), delimiter=delimiter, strict=True)
    try:
        yield from ((reader.line_num, row) for row in reader if any(map(str.strip, row)))
    except csv.Error as error:
        raise DataError(
            f"not a table: {error}",
            where=f"{name}, line {reader.line_num}",
            remedy="save it as CSV again",
        ) from error


def _text_lines(blocks: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(lines_of(blocks, name), start=1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise not_utf8(error, f"{name}, line {number}") from error


def _cells(record: type[msgspec.Struct]) -> dict[str, Cell]:
    """Return how a cell of each field is read."""
    return {field.encode_name: _cell(field.type) for field in msgspec.structs.fields(record)}


def _value(column: str, text: str, cell: Cell) -> object:
    """Return the value of a cell.

    Raises:
        ValueError: If it should be JSON and is not; names the column.
    """
    try:
        return cell(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"column {column}, {text[:40]!r}: {error}") from error


def _cell(kind: Any) -> Cell:  # noqa: ANN401 - any annotation of a field
    nested = kind is not Any and (_takes([], kind) or _takes({}, kind))
    text = _takes("", kind)

    def read(cell: str) -> object:
        is_json = nested and cell.lstrip().startswith(("[", "{")) if text else True
        value = msgspec.json.decode(cell) if is_json else cell
        # tables write whole numbers so, where cells of the column are empty
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return read


def _takes(value: object, kind: Any) -> bool:  # noqa: ANN401 - any annotation of a field
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True
