"""`Snapshots`: a party's state after each round, so that a kill loses no finished round."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from qpriv.errors import CheckpointError
from qpriv.io import atomic_open, lock_dir

_RUN = "run"
_KEPT = 2
"""States to keep: a client may be one round ahead of its server and must then step back."""


class Snapshots:
    """Numbered states in a folder, written atomically; the last two are kept.

    Args:
        folder: Folder of the states; created if missing.
        run: Description of the run; states of another run are refused. None accepts any.
    """

    def __init__(self, folder: Path, run: Mapping[str, str] | None = None) -> None:
        self.folder, self.run = folder, run
        folder.mkdir(parents=True, exist_ok=True)

    def numbers(self) -> list[int]:
        """Return the numbers of the stored states, ascending."""
        return sorted(int(path.stem) for path in self.folder.glob("*.pt") if path.stem.isdigit())

    def write(self, number: int, state: Mapping[str, Any]) -> None:
        """Write a state, sync it to disk, and remove older states.

        The folder is this process's own from the first state on; anybody may read.

        Raises:
            CheckpointError: If the disk does not take it.
            ConfigError: If another process writes there.
        """
        lock_dir(self.folder)
        try:
            with atomic_open(self._path(number)) as file:
                torch.save({**state, _RUN: dict(self.run or {})}, file)
        # torch reports a full disk as RuntimeError from its own writer
        except (OSError, RuntimeError) as error:
            raise CheckpointError(
                f"cannot write the state of round {number}: {error}",
                where=str(self.folder),
                remedy="free space, then start this party again: no finished round is lost",
            ) from error
        for old in self.numbers()[:-_KEPT]:
            self._path(old).unlink()

    def read(self, number: int) -> dict[str, Any]:
        """Return a state, its tensors on the CPU.

        Raises:
            CheckpointError: If it is not there, not readable, or of another run.
        """
        try:
            state: dict[str, Any] = torch.load(
                self._path(number), map_location="cpu", weights_only=True
            )
        except Exception as error:  # torn zip files and foreign pickles fail in many ways
            raise CheckpointError(
                f"there is no readable state of round {number}, but of {self.numbers() or 'none'}",
                where=str(self.folder),
                remedy="give the folder this party has trained in, or start all parties anew",
            ) from error
        self._check(state.pop(_RUN, {}))
        return state

    def _check(self, stored: Mapping[str, str]) -> None:
        own = stored if self.run is None else self.run
        for name in sorted(own.keys() | stored.keys()):
            if own.get(name) != stored.get(name):
                raise CheckpointError(
                    f"it holds a run whose {name} is {stored.get(name)}, not {own.get(name)}",
                    where=str(self.folder),
                    remedy="go on with the settings it was started with, or choose another --out",
                )

    def forget_after(self, number: int) -> None:
        """Remove the states of later rounds, which will be trained again."""
        for later in self.numbers():
            if later > number:
                self._path(later).unlink()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.pt"
