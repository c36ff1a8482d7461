"""Typed records out of a JSON file of any size, a few megabytes of it in memory at a time."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from qpriv.errors import DataError

from .encodings import not_utf8

T = TypeVar("T")
Records = dict[str, T | None] | list[T | None]
BLANKS = b" \t\r\n"
"""What may stand between the parts of a JSON file."""

LARGEST = 1 << 26
"""Most bytes of a record: 64 MiB."""

Refused = Callable[[bytes, DataError], None]
"""What is called with a record that has not the declared fields, as JSON, and with its error."""

_TAIL = 1 << 15  # where the end of a block's last complete record is looked for first
_LARGEST_TAIL = 1 << 23
_BRACKETS = re.compile(rb"[\[{\]]|\}(?:\s*,)?")


def iter_json(
    blocks: Iterator[bytes], name: str, record: type[T], array: str | None, refused: Refused
) -> Iterator[tuple[str, T]]:
    """Yield the records of a JSON file with their keys, or their positions, as strings.

    Args:
        blocks: The file in UTF-8, without a byte-order mark.
        name: Its name, for messages.
        record: A `msgspec.Struct`.
        array: Name of the field that holds the records, where the file has a header.
        refused: Is called with each record that has not the declared fields.

    Raises:
        DataError: If the file is broken or in another layout; names the file and the record.
    """
    yield from _Reader(blocks, name, record, array, refused)


_NOT_UTF8 = "UTF-8"  # in the message of msgspec's error
_OTHER_FORMAT = "this is not the release's format, or the record was edited by hand"
_OTHER_FILE = "this reader wants the release's own file: is it another one of that name?"
_MALFORMED = "mend it there, or get the file from its source again"


class _Reader(Generic[T]):
    """Cuts a stream between records, and lets the decoder prove each cut right.

    A cut is a guess: a comma behind a closing brace. The piece up to it is closed by hand and
    decoded; if that succeeds, the decoder stood between two records there, so the guess was
    right. Only the guess looks at single bytes, and only at the last few thousand of a block.
    """

    def __init__(
        self,
        blocks: Iterator[bytes],
        name: str,
        record: type[T],
        array: str | None,
        refused: Refused,
    ) -> None:
        self._blocks, self._name, self._array, self._refused = blocks, name, array, refused
        self._done = 0
        self._header = b""
        self._buffer = next(blocks, b"").lstrip(BLANKS)
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
        for block in self._blocks:
            self._buffer += block
            if (cut := self._cut(tail)) is None:
                tail = min(4 * tail, _LARGEST_TAIL)  # a record larger than the tail
                if len(self._buffer) > LARGEST:
                    raise self._broken(f"a record of more than {LARGEST} bytes")
                continue
            records, self._buffer = cut
            yield from self._keyed_records(records)
        yield from self._keyed_records(self._last())

    def _enter(self) -> None:
        """Move behind the bracket that opens the records."""
        opening = self._open
        if self._array is not None and self._buffer[:1] == b"{":
            opening = b'"' + self._array.encode() + rb'"\s*:\s*\['
        else:
            opening = b"^" + re.escape(opening)
        found = re.search(opening, self._buffer)
        if found is None:
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
        try:
            raw = self._shape.decode(piece)
        except (msgspec.DecodeError, RecursionError) as error:
            # wrong before the place where the JSON ends to be JSON
            raise undecodable(error, piece, self._after()) from None
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
            wrong = undecodable(error, bytes(value), f"{self._name}, record {name}")
            if not isinstance(error, msgspec.ValidationError):
                raise wrong from None
            self._refused(bytes(value), wrong)
            return None

    def _broken(self, what: str, remedy: str = "download the file again") -> DataError:
        return DataError(what, where=self._after(), remedy=remedy)

    def _after(self) -> str:
        after = f"after record {self._done - 1}" if self._done else "before the first record"
        return f"{self._name}, {after}"


def undecodable(error: Exception, data: bytes, where: str) -> DataError:
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
    remedy = _MALFORMED
    if "trailing characters" in str(error):
        remedy += "; records without a list around them become one by `jq -s . FILE > NEW_FILE`"
    return DataError(f"not JSON: {error}", where=where, remedy=remedy)
