"""Typed records out of a JSON file of any size, a few megabytes of it in memory at a time."""

import re
from collections.abc import Callable, Iterator
from typing import IO, Any, Generic, TypeVar

import msgspec

from qpriv.errors import DataError, reason

from .encodings import not_utf8, refuse_other_encoding
from .files import UNPACKING_ERRORS, DataFile, open_data
from .report import DataReport

T = TypeVar("T")
Records = dict[str, T | None] | list[T | None]
Refused = Callable[[bytes, DataError], None]
"""What is called with a record that has not the declared fields, as JSON, and with its error."""

_BLOCK = 1 << 22  # bytes read at a time
_TAIL = 1 << 15  # where the end of a block's last complete record is looked for first
_LARGEST = 1 << 26  # of a record: 64 MiB
_BRACKETS = re.compile(rb"[\[{\]]|\}(?:\s*,)?")


def iter_records(
    file: DataFile,
    record: type[T],
    *,
    array: str | None = None,
    report: DataReport | None = None,
    refused: Refused | None = None,
) -> Iterator[tuple[str, T]]:
    """Yield the records of a file with their keys, or their positions, as strings.

    Fields that ``record`` does not declare are skipped without becoming Python objects.

    Args:
        file: A JSON object of records by key, an array of records, or (see ``array``) an object
            that holds such an array.
        record: A `msgspec.Struct`.
        array: Name of the field that holds the records, where the file has a header.
        report: Accounts for the records that have not the declared fields, where these are left
            out, see `DataReport.refuse`; without one the first of them is an error.
        refused: Is called with each such record instead, where records are no rows of their own.

    Raises:
        DataError: If the file is broken, in another encoding than UTF-8 or in another layout, or
            a record has not the declared fields; names the file and the record.
    """
    with open_data(file) as stream:
        account = report or DataReport("", "")
        yield from _Reader(stream, file.name, record, array, refused or _counted(account))


_NOT_UTF8 = "UTF-8"  # in the message of msgspec's error
_BLANKS = b" \t\r\n"
_OTHER_FORMAT = "this is not the release's format, or the record was edited by hand"
_OTHER_FILE = "this reader wants the release's own file: is it another one of that name?"
_MALFORMED = "mend it there, or get the file from its source again"


def _counted(report: DataReport) -> Refused:
    """Return what accounts for records that are rows."""

    def refused(record: bytes, error: DataError) -> None:
        report.refuse(error)
        report.read += 1

    return refused


class _Reader(Generic[T]):
    """Cuts a stream between records, and lets the decoder prove each cut right.

    A cut is a guess: a comma behind a closing brace. The piece up to it is closed by hand and
    decoded; if that succeeds, the decoder stood between two records there, so the guess was
    right. Only the guess looks at single bytes, and only at the last few thousand of a block.
    """

    def __init__(
        self,
        stream: IO[bytes],
        name: str,
        record: type[T],
        array: str | None,
        refused: Refused,
    ) -> None:
        self._stream, self._name, self._array, self._refused = stream, name, array, refused
        self._done = 0
        self._header = b""
        block = self._read()
        refuse_other_encoding(block, name)
        self._buffer = block.removeprefix(b"\xef\xbb\xbf").lstrip(_BLANKS)
        self._keyed = array is None and self._buffer[:1] == b"{"
        container: Any = dict[str, record] if self._keyed else list[record]  # type: ignore[valid-type]
        shape: Any = dict[str, msgspec.Raw] if self._keyed else list[msgspec.Raw]
        self._open, self._close = (b"{", b"}") if self._keyed else (b"[", b"]")
        self._decoder: msgspec.json.Decoder[Records[T]] = msgspec.json.Decoder(container)
        self._shape = msgspec.json.Decoder(shape)
        self._record = msgspec.json.Decoder(record)
        field = ("records", container, msgspec.field(name=array))
        self._file: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            msgspec.defstruct("_File", [field])
        )

    def __iter__(self) -> Iterator[tuple[str, T]]:
        self._enter()
        tail = _TAIL
        while block := self._read():
            self._buffer += block
            if (cut := self._cut(tail)) is None:
                tail = min(4 * tail, 2 * _BLOCK)  # a record larger than the tail
                if len(self._buffer) > _LARGEST:
                    raise self._broken(f"a record of more than {_LARGEST} bytes")
                continue
            records, self._buffer = cut
            yield from self._keyed_records(records)
        yield from self._keyed_records(self._last())

    def _read(self) -> bytes:
        try:
            return self._stream.read(_BLOCK)
        except UNPACKING_ERRORS as error:
            raise self._broken(f"the compressed data is damaged: {reason(error)}") from error

    def _enter(self) -> None:
        """Move behind the bracket that opens the records."""
        opening = self._open
        if self._array is not None and self._buffer[:1] == b"{":
            opening = b'"' + self._array.encode() + rb'"\s*:\s*\['
        else:
            opening = b"^" + re.escape(opening)
        found = re.search(opening, self._buffer)
        if found is None:
            self._refuse_lines()
            expected = f"{self._array!r}, an array of records" if self._array else "records"
            raise self._broken(f"not a JSON file with {expected}", _OTHER_FILE)
        self._header, self._buffer = self._buffer[: found.end()], self._buffer[found.end() :]

    def _cut(self, tail: int) -> "tuple[Records[T], bytes] | None":
        """Return the complete records of the buffer and the rest of it, None if none is found."""
        start = max(0, len(self._buffer) - tail)
        depth, guesses = 0, []
        for bracket in _BRACKETS.finditer(self._buffer, start):
            text = bracket[0]
            depth += 1 if text in (b"[", b"{") else -1
            if text.endswith(b","):
                guesses.append((depth, -bracket.start(), bracket.end()))
        for _, _, end in sorted(guesses)[:50]:
            piece = self._buffer[: end - 1].rstrip()
            records = self._decoded(self._open + piece + self._close)
            if records is not None:
                return records, self._buffer[end:]
        return None

    def _decoded(self, piece: bytes) -> "Records[T] | None":
        """Return the records of a piece, None if it is not a whole number of records."""
        try:
            return self._decoder.decode(piece)
        except msgspec.ValidationError:
            # either a wrong guess closed a record too early, or a record is wrong
            try:
                self._shape.decode(piece)
            except msgspec.DecodeError:
                return None
            return self._sorted_out(piece)
        except (msgspec.DecodeError, RecursionError) as error:
            if isinstance(error, RecursionError) or _NOT_UTF8 in str(error):
                return self._sorted_out(piece)  # no wrong guess can cause these
            return None

    def _last(self) -> "Records[T]":
        """Return the records of the rest of the file, which must end as JSON does."""
        records: Records[T]
        try:
            if not self._header.startswith(b"{") or self._keyed:
                records = self._decoder.decode(self._open + self._buffer)
            else:
                records = self._file.decode(self._header + self._buffer).records
        except (msgspec.DecodeError, RecursionError) as error:
            if "truncated" in str(error):
                raise self._broken("the JSON ends early", "download the file again") from error
            return self._sorted_out(self._records_of_the_rest())
        return records

    def _records_of_the_rest(self) -> bytes:
        """Return the rest of the file as an object or array of records alone."""
        if self._keyed or not self._header.startswith(b"{"):
            return self._open + self._buffer
        raw = msgspec.defstruct("_Raw", [("records", msgspec.Raw, msgspec.field(name=self._array))])
        try:
            return bytes(msgspec.json.decode(self._header + self._buffer, type=raw).records)  # type: ignore[attr-defined]
        except (msgspec.DecodeError, RecursionError):
            return self._open + self._buffer

    def _keyed_records(self, records: "Records[T]") -> Iterator[tuple[str, T]]:
        if isinstance(records, dict):
            named = iter(records.items())
        else:
            named = ((str(self._done + index), record) for index, record in enumerate(records))
        yield from ((name, record) for name, record in named if record is not None)
        self._done += len(records)

    def _sorted_out(self, piece: bytes) -> "Records[T]":
        """Return the records of a piece, with None in place of those that cannot be used.

        Raises:
            DataError: If the piece is not JSON, or a record cannot be used and the report stops
                at that.
        """
        self._refuse_lines()
        try:
            raw = self._shape.decode(piece)
        except (msgspec.DecodeError, RecursionError) as error:
            # wrong before the place where the JSON ends to be JSON
            raise _undecodable(error, piece, self._after()) from None
        values = list(raw.values() if self._keyed else raw)
        names = list(raw) if self._keyed else [str(self._done + n) for n in range(len(values))]
        records = [self._one(value, name) for value, name in zip(values, names, strict=True)]
        if None not in records:
            raise self._broken("records are not of the expected kind", _OTHER_FILE)
        return dict(zip(names, records, strict=True)) if self._keyed else records

    def _one(self, value: msgspec.Raw, name: str) -> T | None:
        try:
            record: T = self._record.decode(value)
            return record
        except (msgspec.DecodeError, RecursionError) as error:
            wrong = _undecodable(error, bytes(value), f"{self._name}, record {name}")
            if not isinstance(error, msgspec.ValidationError):
                raise wrong from None
            self._refused(bytes(value), wrong)
            return None

    def _refuse_lines(self) -> None:
        """Check that the file is not in JSON Lines, a record a line without a list around them.

        Raises:
            DataError: If it is.
        """
        if self._done or not (self._header + self._buffer).startswith(b"{"):
            return
        start = self._header + self._buffer
        while start.count(b"\n") < 2 and len(start) < _LARGEST and (block := self._read()):
            start += block
        first, _, rest = start.partition(b"\n")
        following = rest.lstrip(_BLANKS).partition(b"\n")[0]
        try:
            records = [self._record.decode(line) for line in (first, following) if line]
            if records[0] == self._blank():
                return  # an object of other fields
        except (msgspec.DecodeError, RecursionError):
            return
        raise DataError(
            "JSON Lines, a record a line, where one list of all records is wanted",
            where=self._name,
            remedy="put the records into a list, for example by `jq -s . FILE > NEW_FILE`",
        )

    def _blank(self) -> T | None:
        """Return a record of no fields, None where some are due."""
        try:
            blank: T = self._record.decode(b"{}")
            return blank
        except msgspec.ValidationError:
            return None

    def _broken(self, what: str, remedy: str = "download the file again") -> DataError:
        return DataError(what, where=self._after(), remedy=remedy)

    def _after(self) -> str:
        after = f"after record {self._done - 1}" if self._done else "before the first record"
        return f"{self._name}, {after}"


def _undecodable(error: Exception, data: bytes, where: str) -> DataError:
    """Return the error of a record, or of what should be some, that the decoder refused."""
    if _NOT_UTF8 in str(error):
        try:
            data.decode()
        except UnicodeDecodeError as wrong:
            return not_utf8(wrong, where)
    if isinstance(error, RecursionError):
        return DataError(
            "brackets inside brackets, deeper than any release has them",
            where=where,
            remedy="do not use this file; get the release from its source",
        )
    if isinstance(error, msgspec.ValidationError):
        return DataError(f"unexpected record: {error}", where=where, remedy=_OTHER_FORMAT)
    return DataError(f"not JSON: {error}", where=where, remedy=_MALFORMED)
