"""Files on disk and in archives, read the same way, and the usual broken downloads."""

import gzip
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from qpriv.errors import DataError

from .names import canonical

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20  # bytes compared at a time


class DataFile(Protocol):
    """A file on disk or in an archive; equal and hashable by its place."""

    def __hash__(self) -> int:
        """Return a hash of the place."""
        ...

    @property
    def name(self) -> str:
        """Return the file's path, in messages and reports."""
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
        """Return the path; bytes that are no letters stand as question marks."""
        return os.fsencode(self.path).decode("utf-8", errors="replace")

    def open(self) -> IO[bytes]:
        """Return the file, opened.

        Raises:
            DataError: If it is not there, or may not be read; says which.
        """
        try:
            return self.path.open("rb")
        except OSError as error:
            raise unopened(error, self.name) from error

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
    stored: str
    """The name as `zipfile` knows it; ``member`` is how it was meant."""

    @property
    def name(self) -> str:
        """Return ``archive.zip/path/in/archive``."""
        return f"{self.archive}/{self.member}"

    def open(self) -> IO[bytes]:
        """Return the member as a stream that is unpacked as it is read.

        Raises:
            DataError: If the archive is damaged.
        """
        try:
            return zipfile.ZipFile(self.archive).open(self.stored)
        except (OSError, zipfile.BadZipFile) as error:
            raise damaged(self.name, str(error)) from error

    def read(self) -> bytes:
        """Return the member's bytes, checked against their checksum.

        Raises:
            DataError: If the archive is damaged.
        """
        try:
            data = self._unpacked()
        except (OSError, zlib.error) as error:
            raise damaged(self.name, str(error)) from error
        if zlib.crc32(data) != self.checksum:
            raise damaged(self.name, "its checksum does not match")
        return data

    def _unpacked(self) -> bytes:
        with self.archive.open("rb") as file:
            file.seek(self.offset)
            name, extra = struct.unpack("<26x2H", file.read(30))  # the header before the data
            file.seek(name + extra, os.SEEK_CUR)
            data = file.read(self.compressed_size)
        return data if self.method == zipfile.ZIP_STORED else zlib.decompress(data, -zlib.MAX_WBITS)


def unopened(error: OSError, where: str) -> DataError:
    """Return the error of a file that the system does not open, with its reason."""
    if isinstance(error, FileNotFoundError):
        return DataError("is not there (any more)", where=where, remedy="check the folder")
    if isinstance(error, PermissionError):
        return DataError(
            f"is there, but may not be read: {error.strerror}",
            where=where,
            remedy="let this user read it (chmod), or copy it",
        )
    reason = error.strerror or str(error)
    return DataError(f"cannot be opened: {reason}", where=where, remedy="check the disk")


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
        except (EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
            raise damaged(one.name, str(error)) from error
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
            pointer, gzip data under another name, an empty file.
    """
    stream = file.open()
    head = stream.read(512)
    stream.seek(0)
    is_gzip, named_gzip = head.startswith(_GZIP_MAGIC), file.name.lower().endswith(".gz")
    if named_gzip and is_gzip:
        return cast(IO[bytes], gzip.open(stream))
    refuse_broken_download(head, file.name)
    if named_gzip:
        raise DataError("named .gz and not gzip data", where=file.name, remedy="remove the .gz")
    return stream


def read_data(file: DataFile) -> bytes:
    """Return all bytes of a data file, see `open_data`.

    Raises:
        DataError: As `open_data`, or if gzip data ends early.
    """
    with open_data(file) as stream:
        try:
            return stream.read()
        except (EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
            raise damaged(file.name, str(error)) from error


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


def zip_members(archive: Path) -> Iterator[ZipMember]:
    """Yield the files of an archive.

    Raises:
        DataError: If it is damaged, encrypted, or has a path that leaves the folder.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            infos = opened.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        with archive.open("rb") as file:
            head = file.read(512)
        if not head.startswith(b"PK"):
            refuse_broken_download(head, str(archive))
        raise damaged(str(archive), f"not a readable zip archive: {error}") from error
    for info in infos:
        member = _meant(info)
        if info.is_dir() or member.endswith("\\"):
            continue
        # `filename` is what zipfile made of it; the name as stored may hide the attack
        check_relative(info.orig_filename, f"{archive}/{info.filename}")
        if _is_hidden(canonical(member)):
            continue
        if info.flag_bits & 1 or info.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise DataError(
                "encrypted, or packed by an unusual method",
                where=f"{archive}/{info.filename}",
                remedy="unpack the archive yourself",
            )
        yield ZipMember(
            archive,
            member,
            info.header_offset,
            info.compress_size,
            info.file_size,
            info.compress_type,
            info.CRC,
            info.filename,
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


def damaged(where: str, what: str) -> DataError:
    """Return the error of a file that is there and broken."""
    return DataError(f"damaged: {what}", where=where, remedy="download it again")
