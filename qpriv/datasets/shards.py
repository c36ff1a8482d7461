"""The files of one split: one series of numbered parts, chosen among copies, whole or refused.

A pattern such as ``train*.parquet`` also matches what must not be added up: an upload and the
hub's conversion of it, two mirrors, two revisions, a part that was downloaded twice.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from qpriv.errors import DataError

from .files import DataFile, size_of
from .tree import FileTree, MissingFileError

_SPLITS = ("train", "validation", "val", "valid", "dev", "testdev", "test")
_PART = r"(?:(?:part|shard|chunk|data)[-_]?)?"
_TOLD = 5  # missing parts that are named


class MissingPartError(MissingFileError):
    """Some files of a numbered series are there, and some are not."""


@dataclass(frozen=True)
class Shard:
    """One file of a series.

    Args:
        path: Its name in the tree.
        series: What the files of one series have in common: their folder, and how they count.
        number: Its number as written; "" where it has none.
        total: The number of files that its name announces; None where it does not.
    """

    path: str
    series: str
    number: str = ""
    total: int | None = None


def parquet_shards(tree: FileTree, stem: str) -> list[Shard]:
    """Return the parquet files that may belong to a split, by the names they have on the hub.

    Those are ``<stem>-00000-of-00002.parquet`` as uploaded, ``<stem>/0000.parquet`` as the hub
    converts, a folder ``<stem>/`` of any parquet files, and plain ``<stem>.parquet``.

    Raises:
        MissingPartError: If the hub has converted the beginning of the split alone.
    """
    parquet = [path for path in tree.names() if path.lower().endswith(".parquet")]
    shards = [shard for path in parquet if (shard := _parquet_shard(path, stem))]
    if partial := [p for p in parquet if f"/partial-{stem}/" in f"/{p.lower()}" and not shards]:
        raise MissingPartError(
            f"{partial[0]} is the beginning of {stem} alone, as the hub converts large sets",
            where=str(tree.root),
            remedy="download the files as they were uploaded",
        )
    return shards


def _parquet_shard(path: str, stem: str) -> Shard | None:
    folder, _, base = path.rpartition("/")
    name, low = base[: -len(".parquet")], stem.lower()
    numbered = re.fullmatch(rf"{re.escape(low)}-{_PART}(\d+)(?:-of-(\d+))?(\D.*)?", name.lower())
    if name.lower() == low:
        return Shard(path, f"{folder}/{stem}")
    if numbered:
        return _numbered(path, f"{folder}/{stem}-", numbered[1], numbered[2])
    if low not in folder.lower().split("/"):
        return None
    other = re.match(rf"({'|'.join(_SPLITS)})(?![a-z])", name.lower())
    if other and low in _SPLITS and other[1] != low:
        return None  # a folder of all splits that is called like one of them
    inside = re.fullmatch(rf"(?:.*-)?{_PART}(\d+)(?:-of-(\d+))?([-_ (].*)?", name.lower())
    if inside and inside[2]:
        return _numbered(path, f"{folder}/", inside[1], inside[2])
    return Shard(path, f"{folder}/*", inside[1] if inside else "")


def _numbered(path: str, series: str, number: str, total: str | None) -> Shard:
    return Shard(path, f"{series}of-{total}", number, int(total) if total else None)


def one_series(
    tree: FileTree, shards: Iterable[Shard], what: str, is_empty: Callable[[DataFile], bool]
) -> list[DataFile]:
    """Return the files of one series in the order of their numbers; empty if there is none.

    Of several series that are copies of each other one is read, of those that differ the one
    nearest to the root, among equals the one in a folder named after the set; the report tells
    what is passed over.

    Args:
        tree: Where the files are; its report is told.
        shards: Every file that may belong to the split.
        what: What the files are, for messages.
        is_empty: Returns whether a file has no rows; empty parts may be alike.

    Raises:
        MissingPartError: If parts of the series are missing; names them.
        DataError: If several series have equal claims and differ, or two files are one part, or
            two parts hold the same rows.
    """
    series: dict[str, list[Shard]] = {}
    for shard in shards:
        series.setdefault(shard.series, []).append(shard)
    if not series:
        return []
    found = sorted((_once(tree, parts, what) for parts in series.values()), key=_place)
    different: list[list[Shard]] = []
    for parts in found:
        copied = next((one for one in different if _is_copy(tree, one, parts)), None)
        if copied is None:
            different.append(parts)
        else:
            tree.report.note(f"{parts[0].path} is the same as {copied[0].path}, and read once")
    firsts = [parts[0].path for parts in different]
    chosen = tree.preferred(firsts, what)
    for path in firsts:
        if path != chosen:
            tree.report.note(f"{chosen} is read; {path} is another series, and is not")
    parts = different[firsts.index(chosen)]
    _check_whole(tree, parts, what)
    return [tree.get(part.path) for part in _distinct(tree, parts, is_empty)]


def _place(parts: Sequence[Shard]) -> tuple[int, str]:
    return parts[0].path.count("/"), parts[0].path


def _once(tree: FileTree, shards: Sequence[Shard], what: str) -> list[Shard]:
    """Return the parts of a series, each number once, in the order of their numbers."""
    by_number: dict[object, list[Shard]] = {}
    for shard in shards:
        by_number.setdefault(int(shard.number) if shard.number else shard.path, []).append(shard)
    chosen = []
    for number, alike in by_number.items():
        paths = [shard.path for shard in alike]
        path = tree.choose(paths, f"{what}, part {number}") if len(paths) > 1 else paths[0]
        chosen.append(next(shard for shard in alike if shard.path == path))
    return sorted(chosen, key=lambda shard: (int(shard.number or 0), shard.path))


def _is_copy(tree: FileTree, one: Sequence[Shard], other: Sequence[Shard]) -> bool:
    return len(one) == len(other) and all(
        tree.is_same(a.path, b.path) for a, b in zip(one, other, strict=True)
    )


def _check_whole(tree: FileTree, parts: Sequence[Shard], what: str) -> None:
    """Check that no number is left out.

    Raises:
        MissingPartError: If one is; names the files.
    """
    if not all(part.number for part in parts):
        return
    first, numbers = parts[0], [int(part.number) for part in parts]
    start = 1 if numbers[0] == 1 and (first.total is None or first.total in numbers) else 0
    if first.total is not None:
        wanted = range(start, start + first.total)
    elif numbers[0] <= 1 or first.number.startswith("0"):
        wanted = range(start, numbers[-1] + 1)
    else:
        return  # numbers that count nothing, such as years
    if missing := [number for number in wanted if number not in set(numbers)]:
        base = first.path.rpartition("/")[2]
        names = [_renumbered(base, first.number, number) for number in missing[:_TOLD]]
        more = f" and {len(missing) - _TOLD} more" if len(missing) > _TOLD else ""
        raise MissingPartError(
            f"{len(missing)} of {len(wanted)} parts of {what} are missing: {', '.join(names)}{more}",
            where=str(tree.root / first.path.rpartition("/")[0]),
            remedy="download them too",
        )


def _renumbered(base: str, number: str, other: int) -> str:
    """Return a part's name with another number.

    >>> _renumbered("train-00000-of-00002.parquet", "00000", 1)
    'train-00001-of-00002.parquet'
    """
    return base.replace(number, f"{other:0{len(number)}d}", 1)


def _distinct(
    tree: FileTree, parts: Sequence[Shard], is_empty: Callable[[DataFile], bool]
) -> list[Shard]:
    """Return the parts without those that repeat another one.

    Raises:
        DataError: If numbered parts do, so that another part is missing under its number.
    """
    kept: list[Shard] = []
    by_size: dict[int, list[Shard]] = {}
    for part in parts:
        file = tree.get(part.path)
        alike = by_size.setdefault(size_of(file), [])
        twin = next((one for one in alike if tree.is_same(one.path, part.path)), None)
        if twin is None or is_empty(file):
            kept.append(part)
            alike.append(part)
        elif part.number:
            raise DataError(
                f"{twin.path} and {part.path} are two parts with the same content",
                where=str(tree.root),
                remedy="download them again: rows would stand twice, and others be missing",
            )
        else:
            tree.report.note(f"{part.path} is the same as {twin.path}, and read once")
    return kept
