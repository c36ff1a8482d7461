"""A run's folder: its name, what lies in it, and how a stopped run is found again."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import lightning as L
import yaml
from jsonargparse import Namespace
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from callbacks.export import Export
from callbacks.step_seed import StepSeed
from lightning_modules.base import TrainedOnly
from qpriv.errors import ConfigError
from qpriv.result import read_results

from .loggers import JsonLogger, PrivateWandbLogger

LAST = Path("checkpoints", "last.ckpt")


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
    """

    root: str = "runs"
    name: str | None = None
    csv: bool = True
    tensorboard: bool = True
    wandb: Literal["off", "offline", "online"] = "offline"
    project: str = "qpriv"


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
    options: RunOptions, command: str, name: str, folder: str | None, ckpt_path: str | None
) -> Run:
    """Choose the folder of a run; no folder that holds another run is ever written to.

    ``ckpt_path`` is a file, ``last`` (go on with the newest stopped run of this name, or the one
    in ``folder``), or ``auto`` (the same, or start afresh where there is none).

    Raises:
        ConfigError: If the folder holds a run, or there is nothing to go on with.
    """
    name = options.name or name
    if ckpt_path in {"last", "auto"} and command == "fit":
        found = _stopped(Path(options.root), name, folder)
        if found is not None:
            return Run(found, str(found / LAST), resumed=True)
        if ckpt_path == "last":
            raise ConfigError(
                f"there is no run of {name} to go on with",
                where=folder or options.root,
                remedy="leave --ckpt_path out, or say auto",
            )
        if folder is not None:
            return Run(Path(folder), None)
        ckpt_path = None
    if ckpt_path is not None and not Path(ckpt_path).is_file():
        raise ConfigError(
            f"there is no checkpoint {ckpt_path}",
            where="--ckpt_path",
            remedy="give a file, or with fit: last or auto",
        )
    return Run(_fresh(options, command, name, folder), ckpt_path)


def _fresh(options: RunOptions, command: str, name: str, folder: str | None) -> Path:
    if folder is None:
        label = name if command == "fit" else f"{name}-{command}"
        stem = Path(options.root) / f"{label}-{time.strftime('%Y%m%d-%H%M%S')}"
        tries = [stem, *(stem.with_name(f"{stem.name}-{number}") for number in range(2, 100))]
        return next(path for path in tries if not path.exists())
    if (Path(folder) / "config.yaml").exists():
        raise ConfigError(
            f"{folder} holds a run already",
            where="--trainer.default_root_dir",
            remedy="choose another folder, or go on with it by --ckpt_path last",
        )
    return Path(folder)


def _stopped(root: Path, name: str, folder: str | None) -> Path | None:
    if folder is not None:
        return Path(folder) if (Path(folder) / LAST).is_file() else None
    # a time stamp is 15 characters, so that `vqa` does not find runs of `vqa_dtp`
    pattern = f"{name}-{'[0-9]' * 8}-{'[0-9]' * 6}*"
    runs = [path for path in root.glob(pattern) if (path / LAST).is_file()]
    return max(runs, key=lambda path: (path / LAST).stat().st_mtime, default=None)


def loggers(options: RunOptions, folder: Path) -> list[Logger]:
    """Return the run's loggers; the first says where checkpoints lie."""
    chosen: list[Logger] = [JsonLogger(folder)]
    if options.csv:
        chosen.append(CSVLogger(folder, name="csv", version=""))
    if options.tensorboard:
        chosen.append(TensorBoardLogger(folder, name="tensorboard", version=""))
    if options.wandb != "off":
        chosen.append(PrivateWandbLogger(folder, options.project, options.wandb))
    return chosen


def standard_callbacks(module: L.LightningModule, folder: Path) -> list[L.Callback]:
    """Return what every run has: seeding by step, checkpoints, the export of what was trained."""
    best = ModelCheckpoint(
        folder / LAST.parent,
        filename="best",
        monitor=module.monitor if isinstance(module, TrainedOnly) else None,
        mode=module.monitor_mode if isinstance(module, TrainedOnly) else "min",
        enable_version_counter=False,
    )
    # apart from `best`: a checkpoint callback writes its `last` only when it has a new best
    last = ModelCheckpoint(folder / LAST.parent, filename=LAST.stem, enable_version_counter=False)
    return [StepSeed(), ResumeRun(folder), Export(str(folder)), best, last]


class ResumeRun(L.Callback):
    """Takes out of the run's files what a run that goes on is going to measure again.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Drop the lines from the resumed step on: all, where a run died before its first checkpoint."""
        if not trainer.is_global_zero:
            return
        for logger in trainer.loggers:
            if isinstance(logger, JsonLogger):
                logger.rewind(trainer.global_step)
        path = self.folder / "results.jsonl"
        if path.is_file():
            results = read_results(path)
            lines = path.read_bytes().split(b"\n")[: len(results)]
            kept = [
                line
                for line, result in zip(lines, results, strict=True)
                if result.epoch is None or result.epoch < trainer.current_epoch
            ]
            draft = path.with_suffix(".part")
            draft.write_bytes(b"".join(line + b"\n" for line in kept))
            draft.replace(path)


class SaveRunConfig(SaveConfigCallback):
    """Writes ``config.yaml`` into the run folder, once, and tells the loggers all settings.

    A resumed run keeps its first ``config.yaml`` and adds ``config-<time>.yaml``.
    """

    def __init__(
        self,
        parser: LightningArgumentParser,
        config: Namespace,
        folder: str = ".",
    ) -> None:
        super().__init__(parser, config, overwrite=True, save_to_log_dir=False)
        self.folder = Path(folder)

    def save_config(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Write the settings; called on the first process only."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = self.parser.dump(self.config, skip_none=False)
        path = self.folder / "config.yaml"
        if path.exists():
            path = path.with_name(f"config-{time.strftime('%Y%m%d-%H%M%S')}.yaml")
        draft = path.with_suffix(".part")
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
        settings = yaml.safe_load(text)
        for logger in trainer.loggers:
            logger.log_hyperparams(settings)


def mark_latest(folder: Path) -> None:
    """Let ``<root>/latest/<name>`` point to a finished run, so that configurations can name it."""
    name = re.sub(r"-\d{8}-\d{6}(-\d+)?$", "", folder.name)
    link = folder.parent / "latest" / name
    link.parent.mkdir(exist_ok=True)
    draft = link.with_name(f".{name}.{os.getpid()}")
    draft.symlink_to(Path("..") / folder.name)
    os.replace(draft, link)
