"""`FileTree`: a folder, a ``.zip`` or a half-unpacked mixture of both, read the same way."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from PIL import Image

from qpriv.errors import DataError

from .files import DataFile, DiskFile, ZipMember, check_relative, zip_members
from .sample import FileImage, ImageSource, MissingImage, decode_image

_PACKED = frozenset({".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar"})
_IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif"})


@dataclass(frozen=True, slots=True)
class ArchivedImage:
    """An image in an archive."""

    file: DataFile

    def load(self) -> Image.Image:
        """Return the image in mode RGB.

        Raises:
            DataError: If it is not an image, or the archive is damaged.
        """
        return decode_image(self.file.read(), self.file.name)


class MissingFileError(DataError):
    """A file of the release is not there."""


class FileTree:
    """All files below a folder, those in its ``.zip`` archives included.

    An archive's members appear as if it had been unpacked where it lies; a file that is there
    unpacked as well is preferred. Names are relative, with forward slashes.

    Args:
        root: A folder, or one ``.zip`` file.

    Raises:
        DataError: If the root is missing, or an archive is damaged or has a member whose path
            would leave the folder it is unpacked in.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser()
        if not self.root.exists():
            raise DataError("no such folder or archive", where=str(self.root), remedy="check root")
        self._files: dict[str, ZipMember | None] = {}  # None: on disk
        if self.root.is_file():
            _check_archive(self.root)
            self._mount(self.root, PurePosixPath())
            return
        archives = []
        for path in _walk(self.root):
            relative = path.relative_to(self.root)
            if path.suffix.lower() == ".zip":
                archives.append(path)
            self._files[relative.as_posix()] = None
        for path in sorted(archives):
            self._mount(path, PurePosixPath(path.relative_to(self.root).parent.as_posix()))

    def _mount(self, archive: Path, place: PurePosixPath) -> None:
        for member in zip_members(archive):
            self._files.setdefault((place / member.member).as_posix(), member)

    def names(self) -> Iterator[str]:
        """Yield the names of all files."""
        return iter(self._files)

    def get(self, name: str) -> DataFile:
        """Return a file by its full name, one of `names`."""
        member = self._files[name]
        return DiskFile(self.root / name) if member is None else member

    def find(self, *names: str) -> DataFile | None:
        """Return the file of the first of these names that is anywhere in the tree, or None.

        A name is a base name or the end of a path, and may have ``.gz`` added in the tree. Of
        several files the one nearest to the root counts.
        """
        for name in names:
            found = self._by_base_name.get(PurePosixPath(name).name, [])
            matching = [path for path in found if f"/{path}".endswith((f"/{name}", f"/{name}.gz"))]
            if matching:
                return self.get(min(matching, key=lambda path: (path.count("/"), path)))
        return None

    def require(self, *names: str, remedy: str) -> DataFile:
        """Return `find`, which must succeed.

        Raises:
            MissingFileError: If none of the names is in the tree.
        """
        if found := self.find(*names):
            return found
        listed = " or ".join(names)
        raise MissingFileError(f"no file {listed}", where=str(self.root), remedy=remedy)

    def matching(self, pattern: str) -> list[DataFile]:
        """Return the files whose full name ends as the regular expression says, sorted."""
        ending = re.compile(f"(^|/)({pattern})$")
        return [self.get(name) for name in sorted(self._files) if ending.search(name)]

    @cached_property
    def _by_base_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self._files:
            base = PurePosixPath(path).name.removesuffix(".gz")
            found.setdefault(base, []).append(path)
        return found

    def image(self, name: str, where: str) -> ImageSource:
        """Return an image by a path that ends as in the tree, or begins above its root.

        Of ``coco/a/1.jpg`` the tree may hold ``images/coco/a/1.jpg``, or ``a/1.jpg`` at its root,
        but ``b/1.jpg`` is another image.

        Args:
            name: The path in the record.
            where: The record, for messages.

        Raises:
            DataError: If the path is absolute or climbs out of the folder.
        """
        check_relative(name, where)
        parts = PurePosixPath(name).parts
        inner = ("/".join(parts[start:]) for start in range(1, len(parts)))
        inside = next((path for path in inner if path in self._files), None)
        file = self.find(name) or (self.get(inside) if inside else None)
        return (
            _image(file) if file else MissingImage(name, f"{where}, looked for below {self.root}")
        )

    def images(self, parts: int = 1) -> "ImageIndex":
        """Return the images of the tree by the last ``parts`` components of their path."""
        return ImageIndex(self, parts)


class ImageIndex:
    """The images of a tree by the end of their path.

    Args:
        tree: Where the images are.
        parts: How many components of the path name an image: 1 for ``COCO_val2014_1.jpg``, 2
            for ``xmlab1/source.jpg``.
    """

    def __init__(self, tree: FileTree, parts: int = 1) -> None:
        self._tree, self._parts = tree, parts
        self._paths: dict[str, str] = {}
        for path in tree.names():
            if os.path.splitext(path)[1].lower() in _IMAGE_SUFFIXES:
                end = "/".join(path.rsplit("/", parts)[-parts:])
                other = self._paths.setdefault(end, path)
                if path.count("/") < other.count("/"):
                    self._paths[end] = path

    def __contains__(self, name: str) -> bool:
        """Return whether an image of this name is there."""
        return name in self._paths

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._paths)

    def __iter__(self) -> Iterator[str]:
        """Yield the names, sorted."""
        return iter(sorted(self._paths))

    def path(self, name: str) -> str:
        """Return an image's full name in the tree."""
        return self._paths[name]

    def source(self, name: str, where: str) -> ImageSource:
        """Return an image by the name a record gives it, a `MissingImage` where it is absent.

        Args:
            name: The name in the record.
            where: The record, for messages.

        Raises:
            DataError: If the name is absolute or climbs out of the folder.
        """
        check_relative(name, where)
        path = self._paths.get("/".join(name.rsplit("/", self._parts)[-self._parts :]))
        if path is None:
            return MissingImage(name, f"{where}, looked for below {self._tree.root}")
        return _image(self._tree.get(path))


def _check_archive(root: Path) -> None:
    """Check that a root that is a file can be a ``.zip``, whatever its name.

    Raises:
        DataError: If it is not; says what to give instead.
    """
    if root.suffix.lower() == ".zip" or root.open("rb").read(2) == b"PK":
        return
    packed = root.suffix.lower() in _PACKED
    raise DataError(
        "a packed archive that is not a .zip" if packed else "neither a folder nor a .zip archive",
        where=str(root),
        remedy="unpack it and give its folder" if packed else "give the folder that holds it",
    )


def _image(file: DataFile) -> ImageSource:
    return FileImage(file.path) if isinstance(file, DiskFile) else ArchivedImage(file)


def _walk(root: Path) -> Iterable[Path]:
    """Yield the files below a folder, through links, each folder once."""
    seen: set[str] = set()
    for folder, subfolders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        subfolders[:] = sorted(
            name for name in subfolders if name != "__MACOSX" and not name.startswith(".")
        )
        if real in seen:
            subfolders.clear()
            continue
        seen.add(real)
        yield from (Path(folder, name) for name in sorted(files) if not name.startswith("."))
