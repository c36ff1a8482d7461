"""A run's folder: how it is named, and how a stopped run is found again."""

import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qpriv.errors import ConfigError
from qpriv.io import lock_dir

LAST = Path("checkpoints", "last.ckpt")
ROOM = 100 << 20
"""Bytes that must be free where a run is going to write; the smallest runs need a tenth of it."""
SETTINGS = "config.yaml"
# settings are read from QPRIV_...: a name of that form would be taken for the setting `run`
_HANDED_OVER = "_QPRIV_RUN_FOLDER"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where a run writes and which dashboards follow it.

    Args:
        root: Folder of all runs. A run is ``<root>/<config name>-<time>``, unless
            ``trainer.default_root_dir`` names its folder.
        name: Name in place of the configuration file's.
        csv: Also write ``csv/metrics.csv``.
        tensorboard: Also write TensorBoard files.
        wandb: Also write a W&B run; ``online`` uploads its figures.
        project: W&B project.
        checkpoint_minutes: Save within an epoch after so much of it as well; null: at its end.
    """

    root: str = "runs"
    name: str | None = None
    csv: bool = True
    tensorboard: bool = True
    wandb: Literal["off", "offline", "online"] = "offline"
    project: str = "qpriv"
    checkpoint_minutes: float | None = 10.0

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        if self.checkpoint_minutes is not None and self.checkpoint_minutes < 0:
            raise ConfigError(
                f"checkpoint_minutes is {self.checkpoint_minutes}",
                where="--run.checkpoint_minutes",
                remedy="choose 0 (after every batch) or more, or null",
            )


@dataclass(frozen=True)
class Run:
    """One run: its folder, and the checkpoint it goes on from.

    Args:
        folder: Where it writes.
        ckpt_path: Checkpoint to load or to go on from.
        resumed: Whether the folder is that of a run that was stopped.
    """

    folder: Path
    ckpt_path: str | None
    resumed: bool = False


def open_run(
    options: RunOptions,
    command: str,
    name: str,
    folder: str | None,
    ckpt_path: str | None,
    *,
    is_typed: bool = True,
) -> Run:
    """Choose the folder of a run; no folder that holds another run is ever written to.

    ``ckpt_path`` is a file, ``last`` (go on with the newest run of this name, or the one in
    ``folder``), or ``auto`` (the same, or start afresh where there is none). A run that died
    before its first checkpoint starts anew in its folder. A command that measures a fit by the
    fit's own configuration, whose folder nobody has typed (``is_typed``), gets a fresh one.
    Processes that this one starts for a distributed run take over its choice.

    Raises:
        ConfigError: If the folder holds a run or another process is at work there, there is
            nothing to go on with, nothing can be written, or processes that were started apart
            cannot agree on a folder.
    """
    handed_over = os.environ.get(_HANDED_OVER)
    if handed_over is not None and os.environ.get("LOCAL_RANK", "0") != "0":
        return _read_run(handed_over)
    if command != "fit" and not is_typed and _holds_a_run(folder):
        folder = None
    _check_agreement(options, folder)
    run = _choose(options, command, options.name or name, folder, ckpt_path)
    check_room(run.folder)
    # the first of a run's processes holds it for all; a new one when it is made (`SaveRunConfig`)
    if run.folder.is_dir() and _is_first():
        lock_dir(run.folder)
    os.environ[_HANDED_OVER] = json.dumps([str(run.folder), run.ckpt_path, run.resumed])
    return run


def _is_first() -> bool:
    """Return whether this is the first of the processes that a launcher or people start for a run."""
    numbers = ("RANK", "SLURM_PROCID", "NODE_RANK", "GROUP_RANK", "LOCAL_RANK")
    return all(os.environ.get(name, "0") == "0" for name in numbers)


def _read_run(handed_over: str) -> Run:
    folder, ckpt_path, resumed = json.loads(handed_over)
    return Run(Path(folder), ckpt_path, resumed)


def _check_agreement(options: RunOptions, folder: str | None) -> None:
    """Refuse a folder named by the clock where a launcher has started several processes."""
    started = max(int(os.environ.get(key, "1")) for key in ("WORLD_SIZE", "SLURM_NTASKS"))
    node = int(os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0")))
    if folder is None and (started > 1 or node > 0):
        raise ConfigError(
            "several processes were started, and each would choose a folder of its own",
            where=options.root,
            remedy="name one that all can see, by --trainer.default_root_dir",
        )


def _choose(
    options: RunOptions, command: str, name: str, folder: str | None, ckpt_path: str | None
) -> Run:
    if ckpt_path in {"last", "auto"} and command == "fit":
        found = _newest(Path(options.root), name, folder)
        if found is not None:
            last = found / LAST
            return Run(found, str(last), resumed=True) if last.is_file() else Run(found, None)
        if ckpt_path == "last":
            raise ConfigError(
                f"there is no run of {name} to go on with",
                where=folder or options.root,
                remedy="leave --ckpt_path out, or say auto",
            )
        ckpt_path = None
    if ckpt_path is not None and not Path(ckpt_path).is_file():
        raise ConfigError(
            f"there is no checkpoint {ckpt_path}",
            where="--ckpt_path",
            remedy="give a file, or with fit: last or auto",
        )
    return Run(_fresh(options, command, name, folder), ckpt_path)


def check_room(folder: Path) -> None:
    """Check before any work that a folder takes files.

    Raises:
        ConfigError: If it cannot be made or written to, or its disk is all but full.
    """
    present = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=present):
            free = shutil.disk_usage(present).free
    except OSError as error:
        raise ConfigError(
            f"cannot write there: {error.strerror}",
            where=str(folder),
            remedy="allow it, or choose another folder by --run.root",
        ) from error
    if free < ROOM:
        raise ConfigError(
            f"only {free >> 20} MiB are free", where=str(folder), remedy="free space first"
        )


def _fresh(options: RunOptions, command: str, name: str, folder: str | None) -> Path:
    if folder is None:
        label = name if command == "fit" else f"{name}-{command}"
        stem = Path(options.root) / f"{label}-{time.strftime('%Y%m%d-%H%M%S')}"
        tries = [stem, *(stem.with_name(f"{stem.name}-{number}") for number in range(2, 100))]
        return next(path for path in tries if not path.exists())
    if _holds_a_run(folder):
        goes_on = ", or go on with it by --ckpt_path last" if command == "fit" else ""
        raise ConfigError(
            f"{folder} holds a run already",
            where="--trainer.default_root_dir",
            remedy=f"choose another folder{goes_on}",
        )
    return Path(folder)


def _holds_a_run(folder: str | None) -> bool:
    return folder is not None and (Path(folder) / SETTINGS).exists()


def _newest(root: Path, name: str, folder: str | None) -> Path | None:
    """Return the run that was last at work; one without a checkpoint is a run as well.

    Were it passed over, an older run of the same name would be gone on with in its place.
    """
    # a time stamp is 15 characters, so that `vqa` does not find runs of `vqa_dtp`
    pattern = f"{name}-{'[0-9]' * 8}-{'[0-9]' * 6}*"
    runs = root.glob(pattern) if folder is None else [Path(folder)]
    seen = [(_last_sign(run), run) for run in runs]
    return max((pair for pair in seen if pair[0]), default=(0.0, None))[1]


def _last_sign(run: Path) -> float:
    """Return when a run last wrote its settings or its checkpoint; 0 is never."""
    signs = [run / LAST, *run.glob(f"{Path(SETTINGS).stem}*.yaml")]
    return max((sign.stat().st_mtime for sign in signs if sign.is_file()), default=0.0)
