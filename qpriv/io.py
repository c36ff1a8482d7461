"""Atomic file writes, and folders that one process has locked."""

import errno
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from qpriv.errors import ConfigError

logger = logging.getLogger(__name__)

LOCK, OWNER = ".lock", ".owner"
"""What is locked in a folder, and the number of the process that has locked it."""
_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
# a lock that is collected gives its folder free: they stay until the process ends
_HELD: dict[Path, FileLock] = {}


@contextmanager
def atomic_open(path: Path) -> Iterator[BinaryIO]:
    """Open a draft beside ``path`` that takes its place, forced to the disk, at the end.

    Where the block fails or the process is killed, what was there before stays.

    Raises:
        OSError: If the disk does not take it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file that is either whole or absent."""
    with atomic_open(path) as file:
        file.write(content)


@contextmanager
def appending(path: Path) -> Iterator[BinaryIO]:
    """Open a file of lines at its end, and force it to the disk at last.

    What a process that died has left of its last line is taken out first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        yield file
        file.flush()
        os.fsync(file.fileno())


def append_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Append lines, given without their newlines."""
    with appending(path) as file:
        file.writelines(line + b"\n" for line in lines)


def lock_dir(folder: Path) -> None:
    """Lock a folder until this process exits.

    The folder is made if it is not there. A process may hold it more than once, and the processes
    that it starts may work there as long as it lives.

    Raises:
        ConfigError: If another process holds it.
        OSError: If the folder cannot be made.
    """
    folder = folder.resolve()
    if folder in _HELD:
        return
    folder.mkdir(parents=True, exist_ok=True)
    # a kill frees it, and processes that are forked give their copy up
    lock = FileLock(folder / LOCK, blocking=False, thread_local=False, fallback_to_soft=False)
    owner = folder / OWNER
    try:
        lock.acquire()
    except Timeout as error:
        number = owner.read_text() if owner.is_file() else "of another machine"
        if number == str(os.getppid()):
            return
        raise ConfigError(
            f"process {number} is at work in this folder",
            where=str(folder),
            remedy="wait until it ends, stop it, or choose another folder",
        ) from error
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        logger.warning("%s cannot be locked (%s): run one process there", folder, error.strerror)
        return
    owner.write_text(str(os.getpid()))
    _HELD[folder] = lock
