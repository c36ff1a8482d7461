"""`AtomicCheckpointIO`: write checkpoints atomically, and keep the previous one."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO

from qpriv.errors import CheckpointError
from qpriv.io import atomic_open

MapLocation = Callable[..., Any] | torch.device | str | dict[str, str] | None
logger = logging.getLogger(__name__)


class AtomicCheckpointIO(CheckpointIO):
    """Writes to a file beside the target, syncs it, replaces the target, and keeps the old file.

    Lightning's plugin writes to the temporary folder first. If that folder is on another file
    system, a kill can leave half a checkpoint under the final name. Our checkpoints hold plain
    values only and load with ``weights_only=True``; they are never downloaded.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None
    ) -> None:
        """Write a checkpoint.

        Raises:
            CheckpointError: If the write fails; the previous file is then untouched.
        """
        target = Path(path)
        try:
            for stale in target.parent.glob(f"{target.name}.*.part"):
                stale.unlink()  # left by a process that was killed while it wrote
            with atomic_open(target) as file:
                torch.save(checkpoint, file)
                _keep_previous(target)
            _sync_folder(target.parent)
        # torch's own writer reports a full disk as RuntimeError
        except (OSError, RuntimeError) as error:
            raise CheckpointError(
                f"cannot write the checkpoint: {error}",
                where=str(target),
                remedy="free space or make the folder writable; the previous checkpoint is intact",
            ) from error

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: MapLocation = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint, or the previous one if this one is broken.

        Args:
            path: File of the checkpoint.
            map_location: As in `torch.load`.
            weights_only: Ignored; the value is always True.

        Raises:
            CheckpointError: If neither can be read, or the path is a URL.
        """
        if "://" in str(path):
            raise CheckpointError(
                "checkpoints are read from disk only", where=str(path), remedy="download it first"
            )
        target = Path(path)
        try:
            return _load(target, map_location)
        except CheckpointError as error:
            previous = previous_of(target)
            if not previous.is_file():
                raise
            logger.warning("%s; going on from the one before it, %s", error, previous)
            return _load(previous, map_location)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint and the previous one that is kept beside it."""
        Path(path).unlink(missing_ok=True)
        previous_of(Path(path)).unlink(missing_ok=True)


def previous_of(path: Path) -> Path:
    """Return the path of the previous file, which the checkpoint replaced.

    >>> previous_of(Path("run/last.ckpt")).as_posix()
    'run/last.previous.ckpt'
    """
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def _load(path: Path, map_location: MapLocation) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError("there is no such checkpoint", where=str(path), remedy="check it")
    try:
        loaded: dict[str, Any] = torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:  # torn zip files and foreign pickles fail in many ways
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"not a readable checkpoint: {first}", where=str(path), remedy="use another one"
        ) from error
    return loaded


def _keep_previous(target: Path) -> None:
    """Hard-link the current file under the previous name, so that a whole one always exists."""
    if target.is_file():
        previous = previous_of(target)
        previous.unlink(missing_ok=True)
        os.link(target, previous)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
