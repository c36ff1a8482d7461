"""`FileTree`: a folder, a ``.zip`` or a half-unpacked mixture of both, read the same way."""

import re
import stat
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

from qpriv.errors import DataError

from .files import (
    DataFile,
    DiskFile,
    UnreadableArchiveError,
    ZipMember,
    relative_name,
    same_content,
    same_size,
    unopened,
    zip_members,
)
from .image_index import ImageIndex
from .names import canonical, folded
from .report import DataReport
from .walking import Walk, walk

_PACKED = frozenset({".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar"})
_GZIP = ".gz"
_JSON = ".json"
_FOR_JSON = (".jsonl", ".ndjson", ".csv", ".tsv")


class MissingFileError(DataError):
    """A file of the release is not there."""


class FileTree:
    """All files below a folder, those in its ``.zip`` archives included.

    An archive's members appear as if it had been unpacked where it lies, or into a folder of its
    own name where some of them lie there already; a file that is there unpacked as well is
    preferred. Names are relative and `canonical`. A damaged archive below the root is left out, and
    named where something is missing.

    Args:
        root: A folder, or one ``.zip`` file.
        report: The account of what is read: it names the set, and takes a note of every choice
            among files.

    Raises:
        DataError: If the root is missing, may not be read or is a damaged archive, or an archive
            has a member whose path would leave the folder it is unpacked in.
    """

    def __init__(self, root: str | Path, report: DataReport | None = None) -> None:
        self.root = Path(root).expanduser()
        self.report = report or DataReport("", "")
        self._files: dict[str, str | ZipMember] = {}  # on disk: the path as the disk spells it
        self._others: dict[str, list[str | ZipMember]] = {}  # more files of a name already taken
        self._walk = Walk()
        self.left_out: list[DataError] = []
        """Archives below the root that cannot be read."""
        if _is_file(self.root):
            _check_archive(self.root)
            self._mount(self.root, "")
            return
        self._walk = walk(self.root)
        for note in self._walk.notes:
            self.report.note(note)
        for path in self._walk.files:
            self._add(canonical(path), path)
        for path in sorted(path for path in self._walk.files if path.lower().endswith(".zip")):
            try:
                self._mount(self.root / path, canonical(path))
            except UnreadableArchiveError as error:
                self.left_out.append(error)
                self._walk.unread[path] = f"is left out: {error.what}"
                self.report.note(f"{path} is left out: {error.what}")

    @property
    def unread(self) -> dict[str, str]:
        """Return what is there and cannot be used, with the reason."""
        return self._walk.unread

    @cached_property
    def folders(self) -> frozenset[str]:
        """Return the names of the folders below the root."""
        return frozenset(map(canonical, self._walk.folders))

    def _add(self, name: str, file: str | ZipMember) -> None:
        other = self._files.setdefault(name, file)
        unpacked = isinstance(other, str) and isinstance(file, ZipMember)
        if other is not file and not unpacked:
            self._others.setdefault(name, []).append(file)

    def _mount(self, archive: Path, place: str) -> None:
        """Let the members of an archive appear beside it, or in the folder they are unpacked in."""
        beside = place.rpartition("/")[0]
        own = place[: -len(".zip")]
        members = [(canonical(member.member), member) for member in zip_members(archive)]
        unpacked = own and any(f"{own}/{name}" in self._files for name, _ in members)
        folder = own if unpacked else beside
        for name, member in members:
            self._add(f"{folder}/{name}" if folder else name, member)

    def names(self) -> Iterator[str]:
        """Yield the names of all files."""
        return iter(self._files)

    def __contains__(self, name: str) -> bool:
        """Return whether a file has this full name."""
        return name in self._files

    def get(self, name: str) -> DataFile:
        """Return a file by its full name, one of `names`.

        Raises:
            DataError: If two files that differ have this name.
        """
        file = self._file(self._files[name])
        for entry in self._others.pop(name, ()):
            if not same_content(file, other := self._file(entry)):
                raise DataError(
                    f"two files of one name that differ: {file.name} and {other.name}",
                    where=str(self.root),
                    remedy="remove one of them",
                )
        return file

    def _file(self, entry: str | ZipMember) -> DataFile:
        return entry if isinstance(entry, ZipMember) else DiskFile(self.root / entry)

    def identity(self, name: str) -> str:
        """Return the one name of a file that links give several names."""
        return self._walk.aliases.get(name, name)

    def unlinked(self, name: str) -> str:
        """Return a path through a linked folder by the folder's name in this tree."""
        for linked, first in self._walk.linked.items():
            if name.startswith(linked):
                return f"{first}{name[len(linked) :]}"
        return name

    def relative(self, name: str, where: str) -> str:
        """Return the path a record names as a name of this tree.

        Raises:
            DataError: If it leads out of the root.
        """
        return self.unlinked(relative_name(name, self.root, where))

    def find(self, *names: str) -> DataFile | None:
        """Return the file of the first of these names that is anywhere in the tree, or None.

        A name is a base name or the end of a path, and may have ``.gz`` added in the tree. Where
        no file is called just so, one counts whose name differs in case alone. See `choose` for
        several. What is passed over is told in the report.

        Raises:
            DataError: If several files have equal claims and differ.
        """
        called = [(name, self._called(name)) for name in names]
        wanted = next((paths for _, paths in called if paths), None)
        if wanted is None:
            return None
        chosen = self.choose(wanted)
        for name, paths in called:
            for path in paths:
                if path not in wanted and not self.is_same(chosen, path):
                    self.report.note(f"{chosen} is read, and {path} is not")
            if paths is wanted and not _ends(chosen, name):
                self.report.note(f"{chosen} is read as {name}")
        return self.get(chosen)

    def _called(self, name: str) -> list[str]:
        """Return the files whose path ends with a name; those that differ in case if need be."""
        tail = folded(_unpacked(canonical(name)))
        alike = [
            path
            for path in self._by_base_name.get(PurePosixPath(tail).name, ())
            if f"/{folded(_unpacked(path))}".endswith(f"/{tail}")
        ]
        return [path for path in alike if _ends(path, name)] or alike

    def choose(self, paths: Sequence[str], what: str = "") -> str:
        """Choose the file to read among several, and note the others in the report.

        The unpacked one is preferred to the one with ``.gz`` beside it, the one nearest to the
        root to others, and among equals the one in a folder that is named after the set.

        Args:
            paths: Names of files with one purpose.
            what: What they are, for messages; the first one's base name where empty.

        Raises:
            DataError: If several have equal claims, and their contents differ.
        """
        ranked = sorted(paths, key=_place)
        first, rivals = ranked[0], []
        for path in ranked[1:]:
            if _unpacked(path) == first:
                self.report.note(f"{first} is read, and {path} beside it is not")
            elif self.is_same(first, path):
                self.report.note(f"{path} is the same as {first}, and read once")
            else:
                rivals.append(path)
        chosen = self.preferred([first, *rivals], what or PurePosixPath(first).name)
        for path in (first, *rivals):
            if path != chosen:
                self.report.note(f"{chosen} is read; {path} differs, and is not")
        return chosen

    def preferred(self, paths: Sequence[str], what: str) -> str:
        """Return the path nearest to the root, among equals the one named after the set.

        Raises:
            DataError: If several have equal claims.
        """
        nearest = min(path.count("/") for path in paths)
        claims = [path for path in paths if path.count("/") == nearest]
        named = [path for path in claims if self._is_named_after_set(path)]
        if len(claims) > 1 and len(named) == 1:
            claims = named
        if len(claims) > 1:
            raise DataError(
                f"{len(claims)} of {what} that differ: {', '.join(claims)}",
                where=str(self.root),
                remedy="give the folder of one of them as root, or move the others away",
            )
        return claims[0]

    def _is_named_after_set(self, path: str) -> bool:
        """Return whether a folder of a path is called like the set, as in ``vqa-rad/data``."""
        folders = (part.rsplit("--")[-1].lower() for part in path.split("/")[:-1])
        plain = (re.sub("[^a-z0-9]", "", folder) for folder in folders)
        wanted = self.report.dataset.lower()
        return bool(wanted) and any(folder.startswith(wanted) for folder in plain)

    def is_same(self, one: str, other: str, only_sizes: bool = False) -> bool:
        """Return whether two files hold the same bytes, or only as many."""
        if self.identity(one) == self.identity(other):
            return True
        compare = same_size if only_sizes else same_content
        return compare(self.get(one), self.get(other))

    def require(self, *names: str, remedy: str) -> DataFile:
        """Find a file that must exist; JSON Lines or a table may replace a JSON file.

        Raises:
            MissingFileError: If none of the names is in the tree; names what is there instead.
            DataError: As `find`.
        """
        if found := self.find(*names):
            return found
        others = [
            f"{name[: -len(_JSON)]}{ending}"
            for name in names
            if name.endswith(_JSON)
            for ending in _FOR_JSON
        ]
        if other := self.find(*others):
            self.report.note(f"{other.name} is read, as there is no {names[0]}")
            return other
        listed = " or ".join(names)
        raise MissingFileError(
            f"no file {listed}{self._instead(names)}", where=str(self.root), remedy=remedy
        )

    def _instead(self, names: Sequence[str]) -> str:
        """Return what there is in place of files that are missing."""
        wanted = {folded(PurePosixPath(name).name) for name in names}
        for path in self._walk.folders:
            if folded(PurePosixPath(canonical(path)).name) in wanted:
                return f", {path} is a folder"
        unread = [*self.unread.items()]
        named = [one for one in unread if folded(PurePosixPath(canonical(one[0])).name) in wanted]
        for path, reason in [*named, *unread][:1]:
            return f"; {path} {reason}"
        near = self.images().nearest(names[0])
        return f", the nearest is {near}" if near else ""

    @cached_property
    def _by_base_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self._files:
            base = folded(_unpacked(PurePosixPath(path).name))
            found.setdefault(base, []).append(path)
        return found

    def images(self, parts: int | None = 1, any_ending: bool = False) -> ImageIndex:
        """Return the files of the tree by the names that records give them, see `ImageIndex`."""
        return ImageIndex(self, parts, any_ending)


def _place(path: str) -> tuple[int, bool, int, str]:
    """Return what files of one purpose are ranked by; ``train (1)`` comes after ``train``."""
    return path.count("/"), _is_gzip(path), len(path), path


def _is_gzip(path: str) -> bool:
    return path.lower().endswith(_GZIP)


def _unpacked(path: str) -> str:
    return path[: -len(_GZIP)] if _is_gzip(path) else path


def _ends(path: str, name: str) -> bool:
    return f"/{_unpacked(path)}".endswith(f"/{_unpacked(canonical(name))}")


def _is_file(root: Path) -> bool:
    """Return whether a root is a file, of whatever kind.

    Raises:
        DataError: If it is not there, or may not be read.
    """
    try:
        return not stat.S_ISDIR(root.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError("no such folder or archive", where=str(root), remedy="check root") from None
    except OSError as error:
        raise unopened(error, str(root)) from error


def _check_archive(root: Path) -> None:
    """Check that a root that is a file can be a ``.zip``, whatever its name.

    Raises:
        DataError: If it is not; says what to give instead.
    """
    with DiskFile(root).open() as file:
        if root.suffix.lower() == ".zip" or file.read(2) == b"PK":
            return
    packed = root.suffix.lower() in _PACKED
    raise DataError(
        "a packed archive that is not a .zip" if packed else "neither a folder nor a .zip archive",
        where=str(root),
        remedy="unpack it and give its folder" if packed else "give the folder that holds it",
    )
