"""Read text files in UTF-8, UTF-16 or UTF-32, and name other encodings."""

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from qpriv.errors import DataError, reason

from .files import UNPACKING_ERRORS, DataFile, open_data, read_data
from .report import DataReport

_BLOCK = 1 << 22  # bytes read at a time
_UTF_8 = "utf-8-sig"
_MARKS = {  # those of UTF-32 begin with those of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WITHOUT_MARK = {
    rb"[^\0]\0\0\0": "utf-32-le",
    rb"\0\0\0[^\0]": "utf-32-be",
    rb"[^\0]\0[^\0]\0": "utf-16-le",
    rb"\0[^\0]\0[^\0]": "utf-16-be",
}
"""Where the nulls are in two letters of ASCII, with which JSON and tables begin (RFC 4627, 3)."""


def encoding_of(head: bytes) -> str:
    r"""Return Python's name of the codec of a text file: UTF-8, or UTF-16 or UTF-32 if it is that.

    Args:
        head: The first four bytes of the file, or more.

    >>> encoding_of(b"[1]"), encoding_of("[1]".encode("utf-16")), encoding_of(b"[\0001\0")
    ('utf-8-sig', 'utf-16', 'utf-16-le')
    """
    marked = (codec for mark, codec in _MARKS.items() if head.startswith(mark))
    unmarked = (c for nulls, c in _WITHOUT_MARK.items() if re.match(nulls, head, re.DOTALL))
    return next(chain(marked, unmarked), _UTF_8)


def read_text(file: DataFile) -> str:
    """Return the text of a file without its byte-order mark, see `text_of`.

    Raises:
        DataError: If it is in another encoding than UTF-8, UTF-16 or UTF-32, or as `read_data`.
    """
    return text_of(read_data(file), file.name)


def text_of(data: bytes, where: str) -> str:
    """Return bytes as text, without a byte-order mark.

    Args:
        data: A whole file in UTF-8, UTF-16 or UTF-32.
        where: Its name, for messages.

    Raises:
        DataError: If they are in another encoding; names the first byte and its line.
    """
    codec = encoding_of(data)
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        if codec != _UTF_8:
            raise _damaged(codec, error, where) from error
        line = data.count(b"\n", 0, error.start) + 1
        raise not_utf8(error, f"{where}, line {line}") from error


def utf8_blocks(file: DataFile, report: DataReport) -> Iterator[bytes]:
    """Yield a text file as blocks of UTF-8 of some megabytes, without its byte-order mark.

    Bytes of a file in UTF-8 are passed on as they are, whether they are letters or not.

    Args:
        file: A file in UTF-8, UTF-16 or UTF-32, packed (``.gz``) or not.
        report: Takes a note where the file is not in UTF-8.

    Raises:
        DataError: As `open_data`, or if the file is damaged.
    """
    blocks = _read(file)
    first = next(blocks, b"")
    codec = encoding_of(first)
    if codec == _UTF_8:
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from blocks
    else:
        report.note(f"{file.name} is in {_name(codec)}, and read as such")
        yield from _recoded(chain((first,), blocks), codec, file.name)


def _read(file: DataFile) -> Iterator[bytes]:
    with open_data(file) as stream:
        try:
            while block := stream.read(_BLOCK):
                yield block
        except UNPACKING_ERRORS as error:
            raise DataError(
                f"the compressed data is damaged: {reason(error)}",
                where=file.name,
                remedy="download the file again",
            ) from error


def _recoded(blocks: Iterable[bytes], codec: str, where: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(codec)()
    try:
        for block in blocks:
            if text := decoder.decode(block):
                yield text.encode()
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _damaged(codec, error, where) from error


def _damaged(codec: str, error: UnicodeDecodeError, where: str) -> DataError:
    return DataError(
        f"text in {_name(codec)} that is damaged: {error.reason}",
        where=where,
        remedy="get the file from its source again",
    )


def _name(codec: str) -> str:
    """Return what people call a codec.

    >>> _name("utf-16-le")
    'UTF-16'
    """
    return codec[:6].upper()


def not_utf8(error: UnicodeDecodeError, where: str) -> DataError:
    """Return the error of text that is not UTF-8; most such files are in Latin-1."""
    byte = error.object[error.start]
    return DataError(
        f"text that is not UTF-8: byte 0x{byte:02x}, in Latin-1 {chr(byte)!r}",
        where=where,
        remedy="convert it: iconv -f LATIN1 -t UTF-8 FILE > NEW_FILE",
    )
