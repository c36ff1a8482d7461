"""Typed records out of a questions file, whether it holds JSON, JSON Lines or a table.

Every reader of such files asks `iter_records`, which looks at what the file is, not at its name.
"""

from collections.abc import Iterator
from itertools import chain
from typing import TypeVar

import msgspec

from qpriv.errors import DataError

from .encodings import utf8_blocks
from .files import DataFile
from .json_lines import is_json_lines, iter_json_lines
from .json_stream import BLANKS, LARGEST, Refused, iter_json
from .record_tables import header_of, iter_table
from .report import DataReport

T = TypeVar("T", bound=msgspec.Struct)

_FIRST_LINE = 1 << 22  # bytes in which the first line of JSON Lines or of a table must end


def iter_records(
    file: DataFile,
    record: type[T],
    *,
    array: str | None = None,
    needed: tuple[str, ...] = (),
    report: DataReport | None = None,
    refused: Refused | None = None,
) -> Iterator[tuple[str, T]]:
    """Yield the records of a file with their keys, or their positions, as strings.

    Fields that ``record`` does not declare are skipped without becoming Python objects. A few
    megabytes of the file are in memory at a time.

    Args:
        file: A JSON object of records by key, an array of records, an object that holds such an
            array (see ``array``), JSON Lines, or a CSV or TSV table whose header names the fields.
            In UTF-8, or else in UTF-16 or UTF-32.
        record: A `msgspec.Struct`.
        array: Name of the field that holds the records, where the file has a header.
        needed: Fields with a default that a table must have nonetheless.
        report: Takes a note where the file is no JSON, and accounts for the records that have not
            the declared fields, where these are left out, see `DataReport.refuse`; without one
            the first of them is an error.
        refused: Is called with each such record instead, where records are no rows of their own.

    Raises:
        DataError: If the file is broken, in another encoding or in another layout, or a record
            has not the declared fields; names the file and the record.
    """
    account = report or DataReport("", "")
    refuse = refused or _counted(account)
    blocks = utf8_blocks(file, account)
    head = _head(blocks)
    whole = chain((head,), blocks)
    if is_json_lines(head, record, array):
        account.note(f"{file.name} is JSON Lines, a record a line, and read as such")
        yield from iter_json_lines(whole, file.name, record, refuse)
    elif header := header_of(head):
        yield from iter_table(whole, file.name, record, header, needed, account, refuse)
    else:
        yield from iter_json(whole, file.name, record, array, refuse)


def _counted(report: DataReport) -> Refused:
    """Return what accounts for records that are rows."""

    def refused(record: bytes, error: DataError) -> None:
        report.refuse(error)
        report.read += 1

    return refused


def _head(blocks: Iterator[bytes]) -> bytes:
    """Return the first blocks, until they tell a JSON array, or a line and what follows it."""
    head = b""
    for block in blocks:
        head += block
        text = head.lstrip(BLANKS)
        follows = text.partition(b"\n")[2].strip(BLANKS)
        if text.startswith(b"[") or follows or len(head) >= min(_FIRST_LINE, LARGEST):
            break
    return head
