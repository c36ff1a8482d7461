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

_GZIP_MAGIC = b"\x1f\x8b"


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
        """Return the path."""
        return str(self.path)

    def open(self) -> IO[bytes]:
        """Return the file, opened.

        Raises:
            DataError: If it cannot be opened.
        """
        try:
            return self.path.open("rb")
        except OSError as error:
            raise DataError(f"cannot be opened: {error.strerror}", where=self.name) from error

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
    method: int
    checksum: int

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
            return zipfile.ZipFile(self.archive).open(self.member)
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
    is_gzip, named_gzip = head.startswith(_GZIP_MAGIC), file.name.endswith(".gz")
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
        if info.is_dir() or info.filename.startswith("__MACOSX/"):
            continue
        # `filename` is what zipfile made of it; the name as stored may hide the attack
        check_relative(info.orig_filename, f"{archive}/{info.filename}")
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
            info.filename,
            info.header_offset,
            info.compress_size,
            info.compress_type,
            info.CRC,
        )


def damaged(where: str, what: str) -> DataError:
    """Return the error of a file that is there and broken."""
    return DataError(f"damaged: {what}", where=where, remedy="download it again")
