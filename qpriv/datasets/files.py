"""Read files on disk and in archives alike, and recognise common broken downloads."""

import gzip
import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from qpriv.errors import DataError, reason

from .names import canonical
from .unpacking import Bounded, Inflating, largest, read_whole

UNPACKING_ERRORS = (EOFError, OSError, ValueError, struct.error, zlib.error)
"""What damaged packed data is met with while it is read."""

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20  # bytes compared at a time
_LOCAL_HEADER = struct.Struct("<4s22x2H")  # of a member: magic, then lengths of name and extra
_READABLE = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_OTHER_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class DataFile(Protocol):
    """A file on disk or in an archive; equal and hashable by its place."""

    def __hash__(self) -> int:
        """Return a hash of the place."""
        ...

    @property
    def name(self) -> str:
        """Return the file's path, in messages and reports."""
        ...

    @property
    def packed_size(self) -> int:
        """Return the bytes the file takes on disk, which limit what it may unpack to."""
        ...

    def open(self) -> IO[bytes]:
        """Return the stored bytes as a stream."""
        ...

    def read(self) -> bytes:
        """Return the stored bytes."""
        ...


@dataclass(frozen=True, slots=True)
class DiskFile:
    """A file on disk."""

    path: Path

    @property
    def name(self) -> str:
        """Return the path; bytes that are not valid text are shown as question marks."""
        return os.fsencode(self.path).decode("utf-8", errors="replace")

    @property
    def packed_size(self) -> int:
        """Return the file's size."""
        return self.path.stat().st_size

    def open(self) -> IO[bytes]:
        """Return the file, opened.

        Raises:
            DataError: If it is not there, may not be read, or is no regular file; says which.
        """
        return open_regular(self.path)

    def read(self) -> bytes:
        """Return the file's bytes.

        Raises:
            DataError: If it cannot be read.
        """
        with self.open() as file:
            return file.read()


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file in an archive, found by its offset.

    `zipfile` reads the whole table of contents whenever an archive is opened, 150,000 names for
    GQA; with the offset at hand, a worker process reads an image in microseconds, and nothing is
    shared that a fork could break.
    """

    archive: Path
    member: str
    offset: int
    compressed_size: int
    size: int
    method: int
    checksum: int
    fault: str = ""
    """Why it cannot be unpacked, as far as the archive's table of contents tells."""

    @property
    def name(self) -> str:
        """Return ``archive.zip/path/in/archive``."""
        return f"{self.archive}/{self.member}"

    @property
    def packed_size(self) -> int:
        """Return its size in the archive."""
        return self.compressed_size

    def check(self) -> None:
        """Check that it can be unpacked, as far as is known before it is.

        Raises:
            DataError: If it cannot.
        """
        if self.fault:
            raise DataError(
                self.fault, where=self.name, remedy="download the archive again, or unpack it"
            )

    def open(self) -> IO[bytes]:
        """Return the member as a stream that is unpacked as it is read.

        Raises:
            DataError: If the archive is damaged, or the member cannot be unpacked here. While it
                is read, as `UNPACKING_ERRORS` if it is damaged further on.
        """
        self.check()
        deflated = self.method == zipfile.ZIP_DEFLATED
        data = Inflating(self._located(), self.compressed_size, deflated, self.checksum)
        limit = largest(self.compressed_size)
        return io.BufferedReader(Bounded(cast(IO[bytes], data), limit, self.name))

    def read(self) -> bytes:
        """Return the member's bytes, checked against their checksum.

        Raises:
            DataError: If the archive is damaged, or unpacks to more than fits.
        """
        with self.open() as stream:
            try:
                return read_whole(stream, self.name)
            except UNPACKING_ERRORS as error:
                raise damaged(self.name, reason(error)) from error

    def _located(self) -> IO[bytes]:
        """Return the archive, at the first byte of the member's data."""
        file = open_regular(self.archive)
        try:
            file.seek(self.offset)
            magic, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            if magic != b"PK\x03\x04":
                raise ValueError("the table of contents points to no member")
            file.seek(name + extra, os.SEEK_CUR)
        except UNPACKING_ERRORS as error:
            file.close()
            raise damaged(self.name, reason(error)) from error
        return file


def open_regular(path: Path) -> IO[bytes]:
    """Return a file, opened; anything but a regular file could keep its reader waiting for ever.

    Raises:
        DataError: If it is no regular file, is missing, or cannot be opened.
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
        if kind == stat.S_IFREG:
            return path.open("rb")
    except (OSError, ValueError) as error:  # a ValueError for a name with a null character
        raise unopened(error, DiskFile(path).name) from error
    raise DataError(
        f"{_OTHER_KINDS.get(kind, 'something else')}, not a regular file",
        where=DiskFile(path).name,
        remedy="put the file itself there",
    )


def unopened(error: Exception, where: str) -> DataError:
    """Return the error of a file that the system does not open, with its reason."""
    if isinstance(error, FileNotFoundError):
        return DataError("is not there (any more)", where=where, remedy="check the folder")
    if isinstance(error, PermissionError):
        return DataError(
            f"is there, but may not be read: {error.strerror}",
            where=where,
            remedy="let this user read it (chmod), or copy it",
        )
    told = getattr(error, "strerror", None) or reason(error)
    return DataError(f"cannot be opened: {told}", where=where, remedy="check the disk")


def same_content(one: DataFile, other: DataFile) -> bool:
    """Return whether two files hold the same bytes; reads them only where their sizes agree.

    Raises:
        DataError: If one of them cannot be read.
    """
    if not same_size(one, other):
        return False
    if isinstance(one, ZipMember) and isinstance(other, ZipMember):
        return one.checksum == other.checksum
    if isinstance(one, DiskFile) and isinstance(other, DiskFile):
        if os.path.samestat(_status(one), _status(other)):
            return True
    with one.open() as left, other.open() as right:
        try:
            while chunk := left.read(_CHUNK):
                if chunk != right.read(len(chunk)):
                    return False
        except UNPACKING_ERRORS as error:
            raise damaged(one.name, reason(error)) from error
    return True


def same_size(one: DataFile, other: DataFile) -> bool:
    """Return whether two files have equally many bytes, unpacked from an archive.

    Raises:
        DataError: If one of them is not there, or may not be looked at.
    """
    return size_of(one) == size_of(other)


def size_of(file: DataFile) -> int:
    """Return the number of bytes of a file, unpacked from an archive.

    Raises:
        DataError: If it is not there, or may not be looked at.
    """
    return file.size if isinstance(file, ZipMember) else _status(file).st_size


def _status(file: DataFile) -> os.stat_result:
    assert isinstance(file, DiskFile)
    try:
        return file.path.stat()
    except OSError as error:
        raise unopened(error, file.name) from error


def relative_name(name: str, root: Path, where: str) -> str:
    """Return the path a record names as `canonical` path below a folder.

    An absolute path is one below the folder where it begins with the folder's own path.

    Raises:
        DataError: If it leaves the folder.
    """
    if name.startswith("/"):
        for folder in {str(root.absolute()), os.path.realpath(root)}:
            if name.startswith(f"{folder.rstrip('/')}/"):
                name = name[len(folder) :].lstrip("/")
                break
    check_relative(name, where)
    return canonical(name)


def check_relative(name: str, where: str) -> None:
    """Check that a path from a file stays below the folder it is relative to.

    Raises:
        DataError: If it is absolute, has a drive, or climbs with ``..``.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or name[1:2] == ":":
        raise DataError(
            f"path {name!r} leaves the data folder",
            where=where,
            remedy="do not use this file, it may be an attack; get the release from its source",
        )


def open_data(file: DataFile) -> IO[bytes]:
    """Return the bytes of a data file as a stream, unpacked where its name ends in ``.gz``.

    Raises:
        DataError: If what is inside is one of the usual broken downloads: a web page, a Git-LFS
            pointer, gzip data under another name, an empty file. While it is read, if it unpacks
            to more than its size allows.
    """
    stream = io.BufferedReader(cast(io.RawIOBase, file.open()))
    try:
        head = stream.peek(512)[:512]
        is_gzip, named_gzip = head.startswith(_GZIP_MAGIC), file.name.lower().endswith(".gz")
        if named_gzip and is_gzip:
            unpacked = cast(IO[bytes], gzip.open(stream))
            return io.BufferedReader(Bounded(unpacked, largest(file.packed_size), file.name))
        refuse_broken_download(head, file.name)
        if named_gzip:
            raise DataError("named .gz and not gzip data", where=file.name, remedy="remove the .gz")
    except UNPACKING_ERRORS as error:
        stream.close()
        raise damaged(file.name, reason(error)) from error
    except DataError:
        stream.close()
        raise
    return stream


def read_data(file: DataFile) -> bytes:
    """Return all bytes of a data file, see `open_data`.

    Raises:
        DataError: As `open_data`, or if packed data is damaged.
    """
    with open_data(file) as stream:
        try:
            return read_whole(stream, file.name)
        except UNPACKING_ERRORS as error:
            raise damaged(file.name, reason(error)) from error


def refuse_broken_download(head: bytes, where: str) -> None:
    """Check that a file's first bytes are not those of a download that went wrong.

    Raises:
        DataError: If they are; says what the file is and what to do.
    """
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        raise DataError("the file is empty", where=where, remedy="download it again")
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise DataError(
            "a web page (HTML) instead of data",
            where=where,
            remedy="the host answered with a login or quota page: download it in a browser",
        )
    if start.startswith(b"version https://git-lfs"):
        raise DataError(
            "a Git-LFS pointer instead of data", where=where, remedy="run `git lfs pull` there"
        )
    if head.startswith((b"../", b"..\\")) and b"\n" not in head.strip():
        raise DataError(
            f"the target of a link instead of data: {head.decode(errors='replace').strip()}",
            where=where,
            remedy="copy the folder with what its links point at (cp -L)",
        )
    if head.startswith(_GZIP_MAGIC):
        raise DataError(
            "gzip data under a name without .gz", where=where, remedy="add .gz to the name"
        )
    if head.startswith(b"PK\x03\x04"):
        raise DataError(
            "a zip archive under another name", where=where, remedy="name it .zip, or unpack it"
        )


class UnreadableArchiveError(DataError):
    """An archive whose table of contents cannot be read."""


def zip_members(archive: Path) -> Iterator[ZipMember]:
    """Yield the files of an archive.

    Raises:
        UnreadableArchiveError: If it is damaged.
        DataError: If it has a path that leaves the folder.
    """
    try:
        infos, size = _table_of_contents(archive)
    except DataError as error:
        raise UnreadableArchiveError(error.what, where=error.where, remedy=error.remedy) from error
    for info in infos:
        member = _meant(info)
        if info.is_dir() or member.endswith("\\"):
            continue
        # `filename` is what zipfile made of it; the name as stored may hide the attack
        check_relative(info.orig_filename, f"{archive}/{info.filename}")
        if _is_hidden(canonical(member)):
            continue
        yield ZipMember(
            archive,
            member,
            info.header_offset,
            info.compress_size,
            info.file_size,
            info.compress_type,
            info.CRC,
            _fault(info, size),
        )


def _meant(info: zipfile.ZipInfo) -> str:
    """Return a member's name; some packers write UTF-8 and do not say so."""
    if info.flag_bits & 0x800 or info.filename.isascii():
        return info.filename
    try:
        return info.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return info.filename


def _is_hidden(member: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in member.split("/"))


def _table_of_contents(archive: Path) -> tuple[list[zipfile.ZipInfo], int]:
    """Return what an archive holds, and its size in bytes."""
    with open_regular(archive) as file:
        try:
            return zipfile.ZipFile(file).infolist(), os.fstat(file.fileno()).st_size
        except Exception as error:  # zipfile meets a damaged table of contents in any way
            file.seek(0)
            head = file.read(512)
            if not head.startswith(b"PK"):
                refuse_broken_download(head, str(archive))
            raise damaged(str(archive), f"not a readable zip archive: {reason(error)}") from error


def _fault(info: zipfile.ZipInfo, archive_size: int) -> str:
    """Return why a member cannot be unpacked, nothing where the table of contents has no reason."""
    if info.flag_bits & 1:
        return "encrypted"
    if info.compress_type not in _READABLE:
        return "packed by an unusual method"
    if info.header_offset + _LOCAL_HEADER.size + info.compress_size > archive_size:
        return "damaged: the archive ends before this file does"
    return ""


def damaged(where: str, what: str) -> DataError:
    """Return the error of a file that is there and broken."""
    return DataError(f"damaged: {what}", where=where, remedy="download it again")
