"""A run's own temporary folder: gone when the run ends or, after a kill, when the next one begins.

A folder is locked for as long as its run lives: one that nobody locks is what a killed run left.
"""

import shutil
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path

from filelock import FileLock, Timeout

LOCK, LOCKED = ".lock", ".locked"
_LAST = -1  # at the end of a process, when those it started have been waited for


def run_folder(prefix: str) -> Path:
    """Return a new, empty folder that only its owner can read; remove what killed runs left.

    It is removed when this process ends, be it one that `multiprocessing` started, and not when
    one ends that this process forked.

    Args:
        prefix: What the name of the folder around it begins with, which holds the lock, and the
            names of folders that may be removed.

    Raises:
        OSError: If no folder for temporary files can be written to.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    (inner := folder / "files").mkdir(mode=0o700)
    lock = FileLock(folder / LOCK, blocking=False, thread_local=False, fallback_to_soft=False)
    Finalize(None, _remove, args=(folder, lock), exitpriority=_LAST)
    try:
        lock.acquire()
    except OSError:  # a file system without locks, where what is alive cannot be told
        return inner
    (folder / LOCKED).touch()  # nobody may look for the lock before it is held
    _sweep(folder, prefix)
    return inner


def _remove(folder: Path, lock: FileLock) -> None:
    lock.release()
    shutil.rmtree(folder, ignore_errors=True)


def _sweep(own: Path, prefix: str) -> None:
    """Remove this user's folders whose runs were killed."""
    owner = own.stat().st_uid
    for other in own.parent.glob(f"{prefix}*"):
        try:
            stranger = other.is_symlink() or other.stat().st_uid != owner
            if stranger or not (other / LOCKED).is_file():
                continue
            with FileLock(other / LOCK, blocking=False, fallback_to_soft=False):
                shutil.rmtree(other, ignore_errors=True)
        except (OSError, Timeout):
            continue  # at work, or removed by another run in this moment
