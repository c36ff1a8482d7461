"""Records in JSON Lines: a JSON object a line, without a list around them (jsonlines.org)."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from qpriv.errors import DataError

from .json_stream import BLANKS, LARGEST, Refused, undecodable

T = TypeVar("T", bound=msgspec.Struct)


def is_json_lines(head: bytes, record: type[msgspec.Struct], array: str | None) -> bool:
    """Return whether a file is in JSON Lines.

    Its first line is a whole object, and another object follows. Of a file of one line the object
    is a record if it has the fields of one.

    Args:
        head: The first bytes of the file, with its first line and some of what follows it.
        record: The type of a record.
        array: Name of the field that holds the records where the file is one object.
    """
    first, _, rest = head.lstrip(BLANKS).partition(b"\n")
    if not first.startswith(b"{"):
        return False
    try:
        given = msgspec.json.decode(first, type=dict[str, msgspec.Raw]).keys()
    except (msgspec.DecodeError, RecursionError):
        return False
    if following := rest.lstrip(BLANKS):
        return following.startswith(b"{")
    fields = msgspec.structs.fields(record)
    due = {field.encode_name for field in fields if field.required}
    declared = {field.encode_name for field in fields}
    return array not in given and due <= given and bool(declared & given)


def iter_json_lines(
    blocks: Iterable[bytes], name: str, record: type[T], refused: Refused
) -> Iterator[tuple[str, T]]:
    """Yield the records of a file in JSON Lines, each with its position.

    Args:
        blocks: The file.
        name: Its name, for messages.
        record: The type of a record.
        refused: Is called with each record that has not the declared fields.

    Raises:
        DataError: If a line is no JSON; names it.
    """
    decoder, position = msgspec.json.Decoder(record), 0
    for number, line in enumerate(lines_of(blocks, name), start=1):
        if not line.strip(BLANKS):
            continue
        try:
            found = decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            wrong = undecodable(error, line, f"{name}, line {number}")
            if not isinstance(error, msgspec.ValidationError):
                raise wrong from None
            refused(line, wrong)
        else:
            yield str(position), found
        position += 1


def lines_of(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a file with their ends.

    Raises:
        DataError: If a line does not end.
    """
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in lines)
        if len(rest) > LARGEST:
            raise DataError(
                f"a line of more than {LARGEST} bytes",
                where=name,
                remedy="get the file from its source again",
            )
    if rest:
        yield rest
