"""`TimedCheckpoint`: save during long epochs, so that a kill loses only minutes."""

import time
from pathlib import Path
from typing import Any

import lightning as L

from qpriv.datasets.sampler import ResumableLoader


class TimedCheckpoint(L.Callback):
    """Saves ``last.ckpt`` every few minutes within an epoch, between two batches.

    `ResumableLoader` and `StepSeed` let a run resume from there as if it had never stopped. With
    another loader, which does not know its position, nothing is saved. The save happens before
    the next batch starts, because at the end of a batch its metrics are not logged yet. Nothing is
    saved between accumulated batches, because checkpoints do not hold gradients. Other callbacks
    save at epoch ends.

    Args:
        path: The run's ``last.ckpt``.
        minutes: Minutes between two saves.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.minutes = path, minutes
        self._saved = 0.0
        self._saving = False

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Restart the clock, because the previous epoch has been saved."""
        self._saved = time.monotonic()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int
    ) -> None:
        """Save if it is time; all processes follow the first one's clock."""
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
