"""Text files by their encoding: UTF-8 with or without a byte-order mark, the others named."""

import codecs

from qpriv.errors import DataError

from .files import DataFile, read_data

_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def read_text(file: DataFile) -> str:
    """Return the text of a file in UTF-8, without its byte-order mark.

    Raises:
        DataError: If it is in another encoding, or as `read_data`.
    """
    return text_of(read_data(file), file.name)


def text_of(data: bytes, where: str) -> str:
    """Return bytes as text, without a byte-order mark.

    Args:
        data: A whole file.
        where: Its name, for messages.

    Raises:
        DataError: If they are not UTF-8; names the encoding that they seem to be in.
    """
    refuse_other_encoding(data[:512], where)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise not_utf8(error, f"{where}, line {line}") from error


def refuse_other_encoding(head: bytes, where: str) -> None:
    """Check that a text file's first bytes are not those of UTF-16 or UTF-32.

    Raises:
        DataError: If they are, with a byte-order mark or without.
    """
    found = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
    start = head[:64]
    if not found and b"\0" in start and len(start.replace(b"\0", b"")) <= len(start) // 2:
        # letters of UTF-16 and UTF-32 without a mark: each with a null, or three
        found = "UTF-16" if start.count(b"\0") <= len(start) // 2 + 1 else "UTF-32"
    if found and head.strip(b"\0"):
        raise DataError(
            f"text in {found} instead of UTF-8",
            where=where,
            remedy=f"convert it: iconv -f {found} -t UTF-8 FILE > NEW_FILE",
        )


def not_utf8(error: UnicodeDecodeError, where: str) -> DataError:
    """Return the error of text that is not UTF-8; Latin-1 is what such files are mostly in."""
    byte = error.object[error.start]
    return DataError(
        f"text that is not UTF-8: byte 0x{byte:02x}, in Latin-1 {chr(byte)!r}",
        where=where,
        remedy="convert it: iconv -f LATIN1 -t UTF-8 FILE > NEW_FILE",
    )
