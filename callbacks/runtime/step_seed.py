"""`StepSeed`: the random numbers of a training step depend on (seed, epoch, batch, rank) alone."""

import os

import lightning as L

from qpriv.paradigms.seeding import seed_step


class StepSeed(L.Callback):
    """Seed python, numpy and torch at the start of every training batch.

    A resumed run then draws what the uninterrupted one would have drawn, and no other callback,
    however careless, can change the training through the random numbers.

    Args:
        seed: Seed of the run; None is what ``seed_everything`` was given, or 0.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int
    ) -> None:
        """Seed the step."""
        seed = self.seed if self.seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))
        seed_step(seed, trainer.current_epoch, batch_idx, rank=trainer.global_rank)
