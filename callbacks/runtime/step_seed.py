"""`StepSeed`: random numbers of a training step depend only on (seed, epoch, batch, rank)."""

import os

import lightning as L

from qpriv.paradigms.seeding import seed_step


class StepSeed(L.Callback):
    """Seeds Python, NumPy and torch at the start of every training batch.

    A resumed run then draws the same random numbers as an uninterrupted one, and no other
    callback can change the training by drawing random numbers.

    Args:
        seed: Seed of the run; None is the seed of ``seed_everything``, or 0.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int
    ) -> None:
        """Seed the step."""
        seed = self.seed if self.seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))
        seed_step(seed, trainer.current_epoch, batch_idx, rank=trainer.global_rank)
