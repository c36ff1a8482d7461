"""Unpack bytes up to a limit: two megabytes of zip can hold gigabytes."""

import io
import os
import zlib
from typing import IO

from qpriv.errors import ConfigError, DataError

SETTING = "QPRIV_MAX_UNPACKED_BYTES"
"""Environment variable with another limit in bytes, for archives that are known."""

_FLOOR = 1 << 26  # what any file may become: 64 MiB
_RATIO = 200  # JSON of repeated fields shrinks to a fortieth, deflate at best to a thousandth
_BLOCK = 1 << 16  # packed bytes read at a time
_WHOLE = 1 << 32  # what is held in memory at once: 4 GiB


def limit_from(setting: str, default: int) -> int:
    """Return a limit that an environment variable may change.

    Raises:
        ConfigError: If the variable is no positive whole number.
    """
    given = os.environ.get(setting, "").strip()
    if not given:
        return default
    if not given.isascii() or not given.isdecimal() or int(given) < 1:
        raise ConfigError(f"{given!r} is no limit", where=setting, remedy="give a whole number")
    return int(given)


def largest(packed: int) -> int:
    """Return the bytes that so many packed ones may become: 64 MiB, or 200 times as many.

    >>> largest(1000), largest(10**6)
    (67108864, 200000000)
    """
    return limit_from(SETTING, max(_FLOOR, _RATIO * packed))


def read_whole(stream: IO[bytes], where: str) -> bytes:
    """Return the rest of a packed stream, which must fit into memory: at most 4 GiB.

    Raises:
        DataError: If it is more.
    """
    limit = limit_from(SETTING, _WHOLE)
    whole = io.BytesIO()
    while block := stream.read(1 << 20):  # a stream asked for the limit would set that aside
        if whole.tell() + len(block) > limit:
            raise too_large(where, limit)
        whole.write(block)
    return whole.getvalue()


def too_large(where: str, limit: int) -> DataError:
    """Return the error of a file that unpacks to more than the limit."""
    return DataError(
        f"it holds more than {limit} bytes when it is unpacked",
        where=where,
        remedy=f"do not use it, it may be an attack; if you trust it, set the environment variable "
        f"{SETTING} to more",
    )


class Bounded(io.RawIOBase):
    """A stream that may give so many bytes and no more.

    Args:
        stream: An unpacking stream.
        limit: Most bytes it may give.
        where: The file's name, for messages.
    """

    def __init__(self, stream: IO[bytes], limit: int, where: str) -> None:
        self._stream, self._limit, self._where = stream, limit, where
        self._given = 0

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, target: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Fill a buffer and return how many bytes that were.

        Raises:
            DataError: If the stream gives more than the limit.
        """
        data = self._stream.read(len(target))
        self._given += len(data)
        if self._given > self._limit:
            raise too_large(self._where, self._limit)
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the stream below, too."""
        if not self.closed:
            self._stream.close()
        super().close()


class Inflating(io.RawIOBase):
    """The bytes of an archive's member, inflated as they are read and checked at their end.

    Args:
        stream: The archive, at the first byte of the member's data; closed with this stream.
        packed: Bytes of that data.
        deflated: Whether they are deflated; they are taken as they are otherwise.
        checksum: CRC-32 of what they unpack to.

    Raises:
        zlib.error: While it is read, if the data is damaged.
        EOFError: While it is read, if the data ends early.
        ValueError: At the end, if the checksum differs.
    """

    def __init__(self, stream: IO[bytes], packed: int, deflated: bool, checksum: int) -> None:
        self._stream, self._left, self._checksum = stream, packed, checksum
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS) if deflated else None
        self._found, self._ended = 0, False

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, target: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Fill a buffer and return how many bytes that were, 0 at the end."""
        data = b"" if self._ended else self._next(len(target))
        if not data and not self._ended:
            self._ended = True
            if self._found != self._checksum:
                raise ValueError("its checksum does not match")
        self._found = zlib.crc32(data, self._found)
        target[: len(data)] = data
        return len(data)

    def _next(self, most: int) -> bytes:
        """Return some more bytes, none at the end."""
        if self._inflater is None:
            return self._packed(most)
        while not self._inflater.eof:
            packed = self._inflater.unconsumed_tail or self._packed(_BLOCK)
            if data := self._inflater.decompress(packed, most):
                return data
            if not packed and not self._inflater.eof:
                raise EOFError("it ends early")
        return b""

    def _packed(self, most: int) -> bytes:
        data = self._stream.read(min(most, self._left))
        if self._left and not data:
            raise EOFError("it ends early")
        self._left -= len(data)
        return data

    def close(self) -> None:
        """Close the archive, too."""
        if not self.closed:
            self._stream.close()
        super().close()
