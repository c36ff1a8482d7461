"""Typed records out of a JSON file of any size, a few megabytes of it in memory at a time."""

import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, Generic, TypeVar

import msgspec

from qpriv.errors import DataError

from .files import DataFile, open_data

T = TypeVar("T")
Records = dict[str, T] | list[T]

_BLOCK = 1 << 22  # bytes read at a time
_TAIL = 1 << 15  # where the end of a block's last complete record is looked for first
_BRACKETS = re.compile(rb"[\[{\]]|\}(?:\s*,)?")


def iter_records(
    file: DataFile, record: type[T], *, array: str | None = None
) -> Iterator[tuple[str, T]]:
    """Yield the records of a file with their keys, or their positions, as strings.

    Fields that ``record`` does not declare are skipped without becoming Python objects.

    Args:
        file: A JSON object of records by key, an array of records, or (see ``array``) an object
            that holds such an array.
        record: A `msgspec.Struct`.
        array: Name of the field that holds the records, where the file has a header.

    Raises:
        DataError: If the file is broken or a record has not the declared fields; names the
            file and the record.
    """
    with open_data(file) as stream:
        yield from _Reader(stream, file.name, record, array)


class _Reader(Generic[T]):
    """Cuts a stream between records, and lets the decoder prove each cut right.

    A cut is a guess: a comma behind a closing brace. The piece up to it is closed by hand and
    decoded; if that succeeds, the decoder stood between two records there, so the guess was
    right. Only the guess looks at single bytes, and only at the last few thousand of a block.
    """

    def __init__(self, stream: IO[bytes], name: str, record: type[T], array: str | None) -> None:
        self._stream, self._name, self._array = stream, name, array
        self._done = 0
        self._header = b""
        self._buffer = self._read().lstrip(b"\xef\xbb\xbf \t\r\n")
        self._keyed = array is None and self._buffer[:1] == b"{"
        container: Any = dict[str, record] if self._keyed else list[record]  # type: ignore[valid-type]
        shape: Any = dict[str, msgspec.Raw] if self._keyed else list[msgspec.Raw]
        self._open, self._close = (b"{", b"}") if self._keyed else (b"[", b"]")
        self._decoder: msgspec.json.Decoder[Records[T]] = msgspec.json.Decoder(container)
        self._shape = msgspec.json.Decoder(shape)
        self._record = msgspec.json.Decoder(record)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        self._enter()
        tail = _TAIL
        while block := self._read():
            self._buffer += block
            if (cut := self._cut(tail)) is None:
                tail *= 4  # a record larger than the tail
                continue
            records, self._buffer = cut
            yield from self._keyed_records(records)
        yield from self._keyed_records(self._last())

    def _read(self) -> bytes:
        try:
            return self._stream.read(_BLOCK)
        except (EOFError, OSError, ValueError, zlib.error, zipfile.BadZipFile) as error:
            raise self._broken(f"the compressed data is damaged: {error}") from error

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
            raise self._broken(f"not a JSON file with {expected}")
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
            raise self._wrong_record(piece) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _last(self) -> "Records[T]":
        """Return the records of the rest of the file, which must end as JSON does."""
        try:
            if not self._header.startswith(b"{") or self._keyed:
                return self._decoder.decode(self._open + self._buffer)
            for bracket in reversed(list(re.finditer(rb"\]", self._buffer))):
                after = self._buffer[bracket.start() :]
                records = self._decoded(self._open + self._buffer[: bracket.end()])
                if records is not None:
                    msgspec.json.decode(self._header + after)
                    return records
            raise self._broken("the JSON ends early")
        except msgspec.ValidationError:
            raise self._wrong_record(self._open + self._buffer) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            early = "truncated" in str(error)
            raise self._broken("the JSON ends early" if early else f"not JSON: {error}") from error

    def _keyed_records(self, records: "Records[T]") -> Iterator[tuple[str, T]]:
        if isinstance(records, dict):
            yield from records.items()
        else:
            yield from ((str(self._done + index), record) for index, record in enumerate(records))
        self._done += len(records)

    def _wrong_record(self, piece: bytes) -> DataError:
        """Return the error of the first record that has not the declared fields."""
        try:
            raw = self._shape.decode(piece)
        except (
            msgspec.DecodeError
        ) as error:  # wrong before the place where the JSON ends to be JSON
            return self._broken(f"not JSON: {error}")
        for index, (key, value) in enumerate(raw.items() if self._keyed else enumerate(raw)):
            try:
                self._record.decode(value)
            except msgspec.ValidationError as error:
                name = key if self._keyed else self._done + index
                return DataError(
                    f"unexpected record: {error}",
                    where=f"{self._name}, record {name}",
                    remedy="this is not the release's format, or the record was edited by hand",
                )
        return self._broken("records are not of the expected kind")

    def _broken(self, what: str) -> DataError:
        after = f"after record {self._done - 1}" if self._done else "before the first record"
        return DataError(what, where=f"{self._name}, {after}", remedy="download the file again")
