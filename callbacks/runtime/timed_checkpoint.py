"""`TimedCheckpoint`: within a long epoch, a kill costs minutes and not the epoch."""

import time
from pathlib import Path
from typing import Any

import lightning as L

from qpriv.datasets.sampler import ResumableLoader


class TimedCheckpoint(L.Callback):
    """Saves ``last.ckpt`` after so many minutes of an epoch, between two batches.

    `ResumableLoader` and `StepSeed` let a run go on from there as if it had never stopped; with a
    loader that does not know its position nothing is saved. It is saved when the next batch is
    about to begin: when a batch ends, its figures are not logged yet. Gradients are in no
    checkpoint, so that nothing is saved between batches that are accumulated to one step. Where an
    epoch ends, checkpoints are saved anyway.

    Args:
        path: The run's ``last.ckpt``.
        minutes: Time between two saves.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.minutes = path, minutes
        self._saved = 0.0
        self._saving = False

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock: the epoch before has been saved."""
        self._saved = time.monotonic()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int
    ) -> None:
        """Save if it is time; the first process's clock is everyone's."""
        loader = trainer.train_dataloader
        if batch_idx == 0 or not isinstance(loader, ResumableLoader):
            return
        if batch_idx % trainer.accumulate_grad_batches:
            return
        due = time.monotonic() - self._saved >= 60 * self.minutes
        if trainer.strategy.broadcast(due):
            self._saving = True
            with loader.one_back():
                trainer.save_checkpoint(self.path, weights_only=False)
            self._saving, self._saved = False, time.monotonic()

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Mark the next batch as not started, so a resumed run repeats it."""
        if not self._saving:
            return
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for count in (progress["total"], progress["current"]):
            count["ready"] = count["started"]
        progress["is_last_batch"] = False
