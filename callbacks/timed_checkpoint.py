"""`TimedCheckpoint`: within a long epoch, a kill costs minutes and not the epoch."""

import math
import time
from pathlib import Path

import lightning as L


class TimedCheckpoint(L.Callback):
    """Saves ``last.ckpt`` after so many minutes of an epoch, between two batches.

    `ResumableLoader` and `StepSeed` let a run go on from there as if it had never stopped. Where
    an epoch or a validation ends, checkpoints are saved anyway.

    Args:
        path: The run's ``last.ckpt``.
        minutes: Time between two saves.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.minutes = path, minutes
        self._saved = 0.0

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock: the epoch before has been saved."""
        self._saved = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Save if it is time; the first process's clock is everyone's."""
        # saved before a validation, a run would go on without it
        if trainer.is_last_batch or (batch_idx + 1) % (trainer.val_check_batch or math.inf) == 0:
            return
        due = time.monotonic() - self._saved >= 60 * self.minutes
        if trainer.strategy.broadcast(due):
            trainer.save_checkpoint(self.path, weights_only=False)
            self._saved = time.monotonic()
