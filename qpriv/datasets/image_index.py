"""`ImageIndex`: the file that a record means by the name it gives an image."""

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image
from rapidfuzz import fuzz, process

from .files import UNPACKING_ERRORS, DataFile, DiskFile, ZipMember
from .images import SUFFIXES, decode_image, has_sound_header
from .names import folded
from .sample import FileImage, ImageSource, MissingImage

if TYPE_CHECKING:
    from .tree import FileTree

_HEADER = 1 << 16
"""Bytes of an archived picture in which its header should end."""
_COMPARED = 200
"""Pairs of equally named images that are compared byte by byte; sizes must do for the others."""
_NAMED = 5
"""Missing images for which the nearest name is looked up."""
_ALIKE = 60.0
"""Least likeness, of 100, of a name that is told in place of a missing one."""


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

    def check(self) -> None:
        """Check the header, without unpacking the rest; decode it only if it looks wrong.

        Raises:
            DataError: If it cannot be decoded, or the archive is damaged.
        """
        try:
            with self.file.open() as stream:
                head = stream.read(_HEADER)
        except UNPACKING_ERRORS:
            head = b""
        if not has_sound_header(io.BytesIO(head)):
            self.load()


@dataclass(frozen=True, slots=True)
class Picture:
    """The file that a record names.

    Args:
        id: What it is called where images are counted and grouped: the components of its path
            that name an image, or all of them where another file shares those. It is a property
            of the file, so that two spellings of its name are one image.
        path: Its path in the tree; of a missing image the path in the record.
        source: Where the pixels come from.
    """

    id: str
    path: str
    source: ImageSource


class ImageIndex:
    """The files of a tree by the end of their path.

    A name may be spelt otherwise than on the disk: with backslashes, ``./``, decomposed letters,
    in another case, as ``.jpeg``, without an ending. A file that is called just so is preferred.

    Args:
        tree: Where the images are.
        parts: How many components of the path name an image: 1 for ``COCO_val2014_1.jpg``, 2
            for ``xmlab1/source.jpg``. None for all of them: of ``coco/a/1.jpg`` the tree may hold
            ``images/coco/a/1.jpg``, or ``a/1.jpg`` at its root, but ``b/1.jpg`` is another image.
        any_ending: Whether an image is the same one under another ending, ``.jpg`` for ``.png``.
    """

    def __init__(self, tree: "FileTree", parts: int | None = 1, any_ending: bool = False) -> None:
        self._tree, self._parts, self._any_ending = tree, parts, any_ending
        self._ends: dict[tuple[int, bool], dict[str, list[str]]] = {}
        self._found: dict[str, tuple[Picture, bool]] = {}
        self._compared = self._named = 0

    def __contains__(self, name: str) -> bool:
        """Return whether a file of this name is there."""
        return folded(name) in self._ending(name.count("/") + 1)

    def __len__(self) -> int:
        """Return the number of images."""
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the images, sorted: the last ``parts`` components of their paths."""
        parts = self._parts or 0
        images = (path for path in self._tree.names() if _is_image(path))
        return iter(sorted({"/".join(path.split("/")[-parts:]) for path in images}))

    def source(self, name: str, where: str) -> ImageSource:
        """Return `find`'s source of the pixels."""
        return self.find(name, where).source

    def find(self, name: str, where: str) -> Picture:
        """Return an image by the name a record gives it, a `MissingImage` where it is absent.

        Args:
            name: The name in the record.
            where: The record, for messages.

        Raises:
            DataError: If the name leads out of the folder, or two images that differ have equal
                claims to it.
        """
        if name not in self._found:
            self._found[name] = self._looked_up(name, where)
        picture, respelt = self._found[name]
        if respelt:
            self._tree.report.repaired["image name that is spelt otherwise than its file"] += 1
        return picture

    def text(self, name: str) -> DataFile | None:
        """Return a file that is no image by its name, or None."""
        path = self._match(name)
        return None if path is None else self._tree.get(path)

    def _looked_up(self, name: str, where: str) -> tuple[Picture, bool]:
        """Return the image of a name, and whether the file is spelt otherwise."""
        wanted = self._tree.relative(name, where)
        path = self._match(wanted)
        if path is None:
            return Picture(self._called(wanted), wanted, self._missing(name, wanted, where)), False
        file = self._tree.get(path)
        if isinstance(file, ZipMember):
            file.check()
        source = FileImage(file.path) if isinstance(file, DiskFile) else ArchivedImage(file)
        own, base = self._tree.identity(path), path.rsplit("/", 1)[-1]
        respelt = name.rsplit("/", 1)[-1] not in (base, _stem(base))
        return Picture(self._called(own), own, source), respelt

    def _called(self, path: str) -> str:
        if self._parts is None:
            return path
        end = "/".join(path.split("/")[-self._parts :])
        alike = self._ending(end.count("/") + 1).get(folded(end), ())
        return end if len({self._tree.identity(one) for one in alike}) < 2 else path

    def _match(self, wanted: str) -> str | None:
        parts = wanted.split("/")
        for stems in (False, True):
            if stems and not (self._any_ending or not _is_image(wanted)):
                break
            for used in range(len(parts), 0, -1):
                tail = "/".join(parts[-used:])
                alike = self._ending(used, stems).get(folded(_stem(tail) if stems else tail), [])
                if used < min(self._parts or len(parts), len(parts)):
                    # the record's path begins above the root
                    alike = [path for path in alike if path.count("/") == used - 1]
                if alike:
                    same = [path for path in alike if f"/{path}".endswith(f"/{tail}")]
                    return self._nearest(same or alike, tail)
        return None

    def _ending(self, parts: int, stems: bool = False) -> dict[str, list[str]]:
        """Return the files by the last components of their paths, images by stem on request."""
        if (parts, stems) not in self._ends:
            found = self._ends[parts, stems] = {}
            for path in self._tree.names():
                split = path.rsplit("/", parts)
                if len(split) < parts or (stems and not _is_image(path)):
                    continue
                tail = "/".join(split[-parts:])
                found.setdefault(folded(_stem(tail) if stems else tail), []).append(path)
        return self._ends[parts, stems]

    def _nearest(self, paths: Sequence[str], tail: str) -> str:
        """Return the one of several images of a name that is nearest to the root.

        Raises:
            DataError: If another one is as near, and differs.
        """
        if len(paths) == 1:
            return paths[0]
        first, *others = sorted(paths, key=lambda path: (path.count("/"), path))
        differing = [path for path in others if not self._is_same(first, path)]
        if differing:
            self._tree.report.repaired[
                "image of whose name there are others, read nearest root"
            ] += 1
        return self._tree.preferred([first, *differing], f"images {tail}")

    def _is_same(self, one: str, other: str) -> bool:
        if self._tree.identity(one) == self._tree.identity(other):
            return True
        self._compared += 1
        return self._tree.is_same(one, other, only_sizes=self._compared > _COMPARED)

    def _missing(self, name: str, wanted: str, where: str) -> MissingImage:
        if self._tree.left_out and not any(map(_is_image, self._tree.names())):
            raise self._tree.left_out[0]  # no image anywhere: they are in the archive
        self._named += 1
        return MissingImage(
            name,
            f"{where}, looked for below {self._tree.root}",
            self._instead(wanted) if self._named <= _NAMED else "",
        )

    def _instead(self, wanted: str) -> str:
        """Return what there is in place of a missing image."""
        for path, reason in self._tree.unread.items():
            if f"{path}/".endswith(f"{wanted}/") or f"{wanted}/".startswith(f"{path}/"):
                return f"{path} {reason}"
        for path, reason in self._tree.unread.items():
            if reason.startswith(("may not", "is left out")):
                return f"{path} {reason}"
        if any(f"/{folder}".endswith(f"/{wanted}") for folder in self._tree.folders):
            return "a folder has this name"
        near = self.nearest(wanted)
        return f"the nearest is {near}" if near else ""

    def nearest(self, wanted: str) -> str:
        """Return the path of the file whose name is most like a name, "" if none is."""
        parts = min(wanted.count("/") + 1, 2)
        ends, tail = self._ending(parts), folded("/".join(wanted.split("/")[-parts:]))
        if alike := self._ending(parts, stems=True).get(_stem(tail)):
            return alike[0]
        found = process.extractOne(tail, ends.keys(), scorer=fuzz.ratio, score_cutoff=_ALIKE)
        return "" if found is None else ends[found[0]][0]


def _is_image(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in SUFFIXES


def _stem(path: str) -> str:
    return path.rpartition(".")[0] if _is_image(path) else path
