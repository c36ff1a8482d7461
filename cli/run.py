"""What every run has: loggers, callbacks, its settings in a file, and a name for later stages."""

import os
import time
from pathlib import Path

import lightning as L
import yaml
from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser, SaveConfigCallback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.loops.fit_loop import RestartStage, _FitLoop
from lightning.pytorch.loops.loop import _Loop

from callbacks.endings import Ending
from callbacks.runtime.export import Export
from callbacks.runtime.live_report import LiveReport
from callbacks.runtime.run_checkpoint import RunCheckpoint
from callbacks.runtime.step_seed import StepSeed
from callbacks.runtime.timed_checkpoint import TimedCheckpoint
from lightning_modules.base import TrainedOnly
from qpriv.io import lock_dir, write_atomic
from qpriv.result import read_results

from .loggers import JsonLogger, PrivateCSVLogger, PrivateTensorBoardLogger, PrivateWandbLogger
from .own_config import name_of_run
from .run_folder import LAST, SETTINGS, RunOptions


def loggers(options: RunOptions, folder: Path) -> list[Logger]:
    """Return the run's loggers; the first says where checkpoints lie."""
    chosen: list[Logger] = [JsonLogger(folder)]
    if options.csv:
        chosen.append(PrivateCSVLogger(folder, name="csv", version=""))
    if options.tensorboard:
        chosen.append(PrivateTensorBoardLogger(folder, name="tensorboard", version=""))
    if options.wandb != "off":
        chosen.append(PrivateWandbLogger(folder, options.project, options.wandb))
    return chosen


def standard_callbacks(
    options: RunOptions, module: L.LightningModule, folder: Path
) -> list[L.Callback]:
    """Return what every run has: seeding by step, checkpoints, the export of what was trained."""
    best = RunCheckpoint(
        folder / LAST.parent,
        filename="best",
        monitor=module.monitor if isinstance(module, TrainedOnly) else None,
        mode=module.monitor_mode if isinstance(module, TrainedOnly) else "min",
        enable_version_counter=False,
    )
    # apart from `best`: a checkpoint callback writes its `last` only when it has a new best, and
    # after a validation where not every epoch ends with one
    last = RunCheckpoint(
        folder / LAST.parent,
        filename=LAST.stem,
        save_on_train_epoch_end=True,
        enable_version_counter=False,
    )
    always: list[L.Callback] = [StepSeed(), ResumeRun(folder), Ending(), Export(str(folder))]
    always += [LiveReport(folder), best, last]
    minutes = options.checkpoint_minutes
    return always if minutes is None else [*always, TimedCheckpoint(folder / LAST, minutes)]


def is_checkpoint(callback: L.Callback) -> bool:
    """Return whether a callback writes checkpoints."""
    return isinstance(callback, RunCheckpoint | TimedCheckpoint)


class ResumeRun(L.Callback):
    """Takes out of the run's files what a run that goes on is going to measure again.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Drop the lines from the resumed step on: all, where a run died before its first checkpoint."""
        _begin_epoch(trainer.fit_loop)
        if not trainer.is_global_zero:
            return
        for logger in trainer.loggers:
            if isinstance(logger, JsonLogger):
                # the very number that lines carry: a paradigm may take several optimiser steps
                # for a batch, or none
                logger.rewind(trainer.fit_loop.epoch_loop._batches_that_stepped)
        path = self.folder / "results.jsonl"
        if path.is_file():
            results = read_results(path)
            lines = path.read_bytes().split(b"\n")[: len(results)]
            kept = [
                line
                for line, result in zip(lines, results, strict=True)
                if result.epoch is None or result.epoch < trainer.current_epoch
            ]
            write_atomic(path, b"".join(line + b"\n" for line in kept))


def _begin_epoch(loop: _FitLoop) -> None:
    """Let a fit that was saved at an epoch's end go on with the next one.

    Under ``max_steps`` a trainer ends that epoch once more, and counts it twice.
    """
    if loop.restarted_on_epoch_end:
        loop.epoch_progress.increment_completed()
        loop._restart_stage = RestartStage.RESUMED_ON_EPOCH_END
        _Loop.restarting.fset(loop, False)  # type: ignore[attr-defined]


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
        self.text = parser.dump(config, skip_none=False)
        # a parser cannot be pickled, and ddp_spawn sends callbacks to the processes it starts
        del self.parser, self.config

    def save_config(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Take the folder and write the settings; called on the first process only."""
        lock_dir(self.folder)
        path = self.folder / SETTINGS
        if path.exists():
            path = path.with_name(f"config-{time.strftime('%Y%m%d-%H%M%S')}.yaml")
        write_atomic(path, self.text.encode())
        settings = yaml.safe_load(self.text)
        for logger in trainer.loggers if _tells_loggers(trainer) else []:
            logger.log_hyperparams(settings)


def _tells_loggers(trainer: L.Trainer) -> bool:
    """Return whether loggers are told the settings (``enable_autolog_hparams``)."""
    return bool(getattr(trainer, "enable_autolog_hparams", True))


def mark_latest(folder: Path) -> None:
    """Let ``<root>/latest/<name>`` point to a finished run, so that configurations can name it."""
    link = folder.parent / "latest" / name_of_run(folder)
    link.parent.mkdir(exist_ok=True)
    draft = link.with_name(f".{link.name}.{os.getpid()}")
    draft.symlink_to(Path("..") / folder.name)
    os.replace(draft, link)
