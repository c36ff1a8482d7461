"""Files with a line for every figure: one line a key, seed and epoch, however often a run is stopped."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import msgspec

from qpriv.errors import DataError
from qpriv.io import append_lines, write_atomic
from qpriv.key import Key, Scalar


class Line(Protocol):
    """A figure or a curve."""

    @property
    def name(self) -> str:
        """What was measured."""
        ...

    @property
    def spot(self) -> tuple[Key, int | None, int | None]:
        """Key, seed and epoch."""
        ...

    @property
    def figure(self) -> object:
        """What two measurements of the same thing must agree in."""
        ...

    @property
    def varies(self) -> bool:
        """Whether no two measurements agree, as those of times."""
        ...

    @property
    def measured_by(self) -> str:
        """Who measured it."""
        ...

    @property
    def setting(self) -> dict[str, Scalar]:
        """The settings its attack was given."""
        ...

    @property
    def attack(self) -> dict[str, Scalar]:
        """What else is known of its attack."""
        ...


L = TypeVar("L", bound=Line)


def read_lines(path: Path, kind: type[L]) -> list[L]:
    """Read a ``.jsonl`` file; a line without its newline is what a killed run leaves behind.

    What earlier versions called ``positions: known`` or ``unknown`` is read as ``knows_positions``,
    their ``attack/fora`` through the true client as ``attack/supervised_inversion``, and their
    ``attack/fora_substitute`` as ``attack/fora``.

    Raises:
        DataError: If a complete line is of another kind; names the file and the line.
    """
    decoder = msgspec.json.Decoder(kind)
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            found.append(current(decoder.decode(line)))
        except msgspec.DecodeError as error:
            raise DataError(
                f"not a {kind.__name__.lower()}: {error}",
                where=f"{path}, line {number}",
                remedy="remove the line",
            ) from error
    return found


def current(line: L) -> L:
    """Return a line of an earlier version with its name and settings as they are called today."""
    name = _attack_named(line)
    if name != line.name:
        line = cast(L, replace(cast(Any, line), name=name))
    parts = {"attack": line.attack, "setting": line.setting}
    told = {name: own for name, own in parts.items() if own.get("positions") in _KNOWLEDGE}
    if not told:
        return line
    renamed: L = replace(cast(Any, line), **{name: _renamed(own) for name, own in told.items()})
    return renamed


def _attack_named(line: Line) -> str:
    """Return the name of a figure; of an inverter it says through which client it was trained."""
    family, _, rest = line.name.partition("/")
    attack, slash, metric = rest.partition("/")
    if family != "attack" or attack not in ("fora", "fora_substitute"):
        return line.name
    client = line.setting.get("client", line.attack.get("client"))
    # the first versions had no other client and named none
    first = client is None and "true client" in str(line.attack.get("auxiliary", ""))
    if attack == "fora" and client != "supervised" and not first:
        return line.name
    today = "fora" if attack == "fora_substitute" else "supervised_inversion"
    return f"attack/{today}{slash}{metric}"


_KNOWLEDGE = {"known": True, "unknown": False}


def _renamed(settings: dict[str, Scalar]) -> dict[str, Scalar]:
    knows = _KNOWLEDGE[str(settings["positions"])]
    rest = {name: value for name, value in settings.items() if name != "positions"}
    return rest | {"knows_positions": knows}


def distinct(lines: Sequence[L], place: Callable[[int], str]) -> list[L]:
    """Return the lines, each key, seed and epoch once; of what varies the last.

    Args:
        lines: Figures or curves.
        place: Where the line of a number stands, for a message.

    Raises:
        DataError: If two of them differ; names both.
    """
    held: dict[object, int] = {}
    for number, line in enumerate(lines):
        first = held.setdefault(line.spot, number)
        if line.varies:
            held[line.spot] = number
        elif not agree(lines[first], line):
            raise _conflict(lines[first], line, f"{place(first)} and {place(number)}")
    return [lines[number] for number in sorted(held.values())]


def record_lines(path: Path, lines: Sequence[L], kind: type[L]) -> None:
    """Add lines to a file and force them to the disk.

    A line of the same key, seed and epoch that the same probe or module wrote is replaced.

    Raises:
        DataError: If somebody else measured something else at the same key, seed and epoch.
    """
    fresh = distinct(lines, lambda number: f"measurement {number + 1} for {path}")
    held = read_lines(path, kind) if path.is_file() else []
    numbers = {line.spot: number for number, line in enumerate(held)}
    gone, new = set[int](), list[bytes]()
    for line in fresh:
        number = numbers.get(line.spot)
        known = None if number is None else held[number]
        if number is None or known is None:
            new.append(msgspec.json.encode(line))
        elif line.varies or (line.measured_by and line.measured_by == known.measured_by):
            if known != line:
                gone.add(number)
                new.append(msgspec.json.encode(line))
        elif not agree(known, line):
            raise _conflict(known, line, f"{path}, line {number + 1}, and what is measured now")
    if not gone:
        append_lines(path, new)
        return
    kept = [line for n, line in enumerate(path.read_bytes().split(b"\n")[:-1]) if n not in gone]
    write_atomic(path, b"".join(line + b"\n" for line in (*kept, *new)))


def agree(one: Line, other: Line) -> bool:
    """Return whether two measurements of the same thing found the same."""
    # as they stand in the file, where a figure that is not finite is null
    return msgspec.json.encode(one.figure) == msgspec.json.encode(other.figure)


def _conflict(one: Line, other: Line, where: str) -> DataError:
    (key, seed, epoch), values = one.spot, (one.figure, other.figure)
    told = " and ".join(str(v[0] if isinstance(v, tuple) else v) for v in values)
    return DataError(
        f"{key} has two values at seed {seed}, epoch {epoch}: {told}",
        where=where,
        remedy="keep the right line, or measure the two in runs or under settings that differ",
    )
