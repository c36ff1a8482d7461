"""List the files below a folder, and everything that cannot be read, with the reason."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from qpriv.errors import DataError

from .files import DiskFile, same_content, unopened


@dataclass
class Walk:
    """The content of a folder, by paths relative to it.

    Args:
        files: The files, those of a folder before those of its subfolders.
        folders: The subfolders.
        unread: What is there and cannot be used, with the reason: folders that may not be listed,
            links to nothing, pipes.
        aliases: Links, and the file below the folder that each leads to.
        linked: Folders that were met before, and the path under which they were.
        notes: One sentence about every choice that was made.
    """

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    linked: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def walk(root: Path) -> Walk:
    """Return what lies below a folder, through links, each folder once.

    Hidden files and folders are left out. Of a cache of the Hugging Face hub one revision is
    read, see `_revision`.

    Raises:
        DataError: If the folder itself may not be listed, or a cache holds several revisions that
            differ and does not say which one is meant.
    """
    found, links = Walk(), dict[str, str]()
    _enter(root, "", found, links, {})
    if "" in found.unread:
        raise DataError(
            f"the folder {found.unread['']}", where=str(root), remedy="let this user list it"
        )
    _resolve(os.path.realpath(root), found, links)
    return found


def _enter(
    folder: Path, prefix: str, found: Walk, links: dict[str, str], seen: dict[str, str]
) -> None:
    first = seen.setdefault(os.path.realpath(folder), prefix)
    if first != prefix:
        found.linked[prefix] = first
        return
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        found.unread[prefix.rstrip("/")] = f"may not be read: {error.strerror}"
        return
    subfolders = []
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            continue
        kind = _kind(entry)
        if kind == "folder":
            subfolders.append(entry.name)
        elif kind == "file":
            found.files.append(name)
            if entry.is_symlink():
                links[name] = os.path.realpath(entry.path)
        else:
            found.unread[name] = kind
    if "snapshots" in subfolders and {"blobs", "refs"} & set(subfolders):
        subfolders = [f"snapshots/{name}" for name in _revision(folder, prefix, found)]
    for name in subfolders:
        found.folders.append(f"{prefix}{name}")
        _enter(folder / name, f"{prefix}{name}/", found, links, seen)


def _kind(entry: "os.DirEntry[str]") -> str:
    """Return ``folder``, ``file``, or why an entry is neither."""
    try:
        if entry.is_dir():
            return "folder"
        if entry.is_file():
            return "file"
    except OSError as error:
        return f"may not be read: {error.strerror}"
    return "is a link to nothing" if entry.is_symlink() else "is neither a file nor a folder"


def _resolve(root: str, found: Walk, links: dict[str, str]) -> None:
    """Name every link by the file it leads to; of links to one file elsewhere by the first."""
    files, first = set(found.files), dict[str, str]()
    for link, target in links.items():
        inside = os.path.relpath(target, root)
        named = inside if inside in files else first.setdefault(target, link)
        if named != link:
            found.aliases[link] = named


def _revision(cache: Path, prefix: str, found: Walk) -> list[str]:
    """Return the one revision of a hub cache that is read.

    It is the one that ``refs/main`` names. Without it, revisions with the same files are one.

    Raises:
        DataError: If there are several that differ.
    """
    try:
        revisions = sorted(path.name for path in (cache / "snapshots").iterdir() if path.is_dir())
        return revisions if len(revisions) < 2 else _chosen(cache, prefix, revisions, found)
    except OSError as error:
        raise unopened(error, str(cache)) from error


def _chosen(cache: Path, prefix: str, revisions: list[str], found: Walk) -> list[str]:
    others = ", ".join(revisions)
    head = _head(cache)
    if head in revisions:
        found.notes.append(
            f"{prefix or cache.name} is a cache with the revisions {others}: {head} is read, "
            "as refs/main says"
        )
        return [head]
    contents = [_content(cache / "snapshots" / name) for name in revisions]
    if all(_is_same(contents[0], other) for other in contents[1:]):
        found.notes.append(
            f"{prefix or cache.name} is a cache with the revisions {others}, whose files are the "
            f"same: {revisions[0]} is read"
        )
        return revisions[:1]
    raise DataError(
        f"a cache with {len(revisions)} revisions that differ, and no refs/main: {others}",
        where=str(cache),
        remedy=f"give one of them as root, such as {cache / 'snapshots' / revisions[-1]}",
    )


def _head(cache: Path) -> str:
    file = cache / "refs" / "main"
    return file.read_text(encoding="utf-8", errors="replace").strip() if file.is_file() else ""


def _content(revision: Path) -> dict[str, Path]:
    return {name: revision / name for name in _names(revision, "")}


def _names(folder: Path, prefix: str) -> Iterator[str]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _names(path, f"{prefix}{path.name}/")
        elif path.is_file():
            yield f"{prefix}{path.name}"


def _is_same(one: dict[str, Path], other: dict[str, Path]) -> bool:
    return one.keys() == other.keys() and all(
        same_content(DiskFile(path), DiskFile(other[name])) for name, path in one.items()
    )
