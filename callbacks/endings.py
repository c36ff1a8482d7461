"""How a fit ends: whether it is over, its last epoch, and its passes through the training set."""

from collections.abc import Mapping
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.utilities import rank_zero_info

_STOPPED, _PASSES = "qpriv_stopped", "qpriv_passes"


def is_over(trainer: L.Trainer) -> bool:
    """Return whether the fit is known to end with the current epoch.

    False is provisional: `EarlyStopping` runs after the probes and may still end the fit.
    """
    most_epochs, most_steps = trainer.max_epochs, trainer.max_steps
    if most_steps != -1 and trainer.global_step >= most_steps:
        return True
    if most_epochs not in (None, -1) and last_epoch(trainer) + 1 >= most_epochs:
        return True
    return bool(trainer.should_stop) and _may_stop(trainer)


def _may_stop(trainer: L.Trainer) -> bool:
    """Return whether a fit has reached ``min_epochs`` and ``min_steps``."""
    enough_epochs = last_epoch(trainer) + 1 >= (trainer.min_epochs or 0)
    return enough_epochs and trainer.global_step >= (trainer.min_steps or 0)


def last_epoch(trainer: L.Trainer) -> int:
    """Return the latest epoch in which a batch was trained, from 0; -1 before any.

    Unlike ``current_epoch``, it does not change before, during or after the epoch-end hooks. It
    also holds in a fit that resumes from a checkpoint and has nothing left to train.
    """
    # the trainer's annotations cover only the counts that all of its trackers share
    started: int = getattr(trainer.fit_loop.epoch_progress.current, "started")
    return started - 1


def passes(trainer: L.Trainer) -> float:
    """Return the passes through the training set: batches processed over batches per pass.

    The value is whole after each whole epoch. It is smaller under ``limit_train_batches`` or when
    the fit ended within an epoch. If the loader has no length, each epoch counts as one pass.
    """
    try:
        of_a_pass = len(trainer.train_dataloader)  # type: ignore[arg-type]
    except TypeError:
        return float(last_epoch(trainer) + 1)
    batches: int = getattr(trainer.fit_loop.epoch_loop.batch_progress.total, "processed")
    return batches / max(1, of_a_pass)


def log_last(trainer: L.Trainer, metrics: Mapping[str, float], epoch: int) -> None:
    """Log metrics of the last epoch from a hook in which Lightning forbids ``module.log``.

    The metrics get the same step as all others logged at the end of that epoch.

    Args:
        trainer: The trainer.
        metrics: Values by the names under which they are logged.
        epoch: The epoch they belong to, from 0.
    """
    tensors = {name: torch.tensor(value) for name, value in metrics.items()}
    trainer.callback_metrics.update(tensors)
    trainer.logged_metrics.update(tensors)
    epochs = trainer.fit_loop.epoch_progress.current
    # a checkpoint saved after a validation does not count the last batch yet
    counted = getattr(epochs, "processed") == getattr(epochs, "started")
    step = trainer.fit_loop.epoch_loop._batches_that_stepped - int(counted)
    for logger in trainer.loggers:
        logger.log_metrics({**metrics, "epoch": epoch}, step=step)
        logger.save()


def passes_of(checkpoint: Mapping[str, Any]) -> float | None:
    """Return a checkpoint's passes through the training set; None if it does not record them."""
    kept = checkpoint.get(_PASSES)
    return None if kept is None else float(kept)


class Ending(L.Callback):
    """Saves the training's progress in checkpoints, and keeps a stopped run stopped.

    Lightning's checkpoints do not record that `EarlyStopping` or another callback ended the
    training. A run killed while probes measure its last epoch would therefore train another one.
    ``min_epochs`` and ``min_steps`` still let it train on. A `Timer` decides again when the run
    resumes, by its own time limit.
    """

    def __init__(self) -> None:
        self._stopped = False

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Save the passes through the training set, and whether the fit was told to stop."""
        batches = trainer.fit_loop.epoch_loop.batch_progress.current
        between = batches.ready == getattr(batches, "processed")
        told = trainer.should_stop and _may_stop(trainer) and not _out_of_time(trainer)
        checkpoint[_STOPPED] = bool(told and between)
        checkpoint[_PASSES] = passes(trainer)

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore whether the fit was told to stop."""
        self._stopped = bool(checkpoint.get(_STOPPED, False))

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stop the fit again if it was told to stop, and log the reason."""
        if self._stopped:
            trainer.should_stop = True
            rank_zero_info(
                "this run was told to stop and has nothing left to train;"
                " --trainer.min_epochs lets it train on"
            )


def _out_of_time(trainer: L.Trainer) -> bool:
    # the trainer sets `callbacks` through a connector, so its annotations lack the attribute
    listed: list[L.Callback] = getattr(trainer, "callbacks")
    left = [each.time_remaining() for each in listed if isinstance(each, Timer)]
    return any(seconds is not None and seconds <= 0 for seconds in left)
