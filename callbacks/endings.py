"""How a fit ends: whether it is over, which epoch was its last, and how far it went."""

from collections.abc import Mapping
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.utilities import rank_zero_info

_STOPPED, _PASSES = "qpriv_stopped", "qpriv_passes"


def is_over(trainer: L.Trainer) -> bool:
    """Return whether a fit ends with the epoch that is at its end, as far as is known by now.

    Whatever comes later may still end it: `EarlyStopping` looks at an epoch after all probes.
    """
    most_epochs, most_steps = trainer.max_epochs, trainer.max_steps
    if most_steps != -1 and trainer.global_step >= most_steps:
        return True
    if most_epochs not in (None, -1) and last_epoch(trainer) + 1 >= most_epochs:
        return True
    return bool(trainer.should_stop) and _may_stop(trainer)


def _may_stop(trainer: L.Trainer) -> bool:
    """Return whether a fit has come as far as ``min_epochs`` and ``min_steps`` ask."""
    enough_epochs = last_epoch(trainer) + 1 >= (trainer.min_epochs or 0)
    return enough_epochs and trainer.global_step >= (trainer.min_steps or 0)


def last_epoch(trainer: L.Trainer) -> int:
    """Return the latest epoch of which a batch was trained, from 0; -1 before any.

    Unlike ``current_epoch`` it is the same before, in and after the hooks of an epoch's end, and
    in a fit that goes on from a checkpoint and has nothing left to train.
    """
    # the trainer's annotations name only what all of its trackers count
    started: int = getattr(trainer.fit_loop.epoch_progress.current, "started")
    return started - 1


def passes(trainer: L.Trainer) -> float:
    """Return how often a fit has gone through its training set: batches over those of a pass.

    Whole numbers at the ends of whole epochs, less under ``limit_train_batches`` or where the
    fit ended in the middle of an epoch. An epoch counts as a pass where a loader has no length.
    """
    try:
        of_a_pass = len(trainer.train_dataloader)  # type: ignore[arg-type]
    except TypeError:
        return float(last_epoch(trainer) + 1)
    batches: int = getattr(trainer.fit_loop.epoch_loop.batch_progress.total, "processed")
    return batches / max(1, of_a_pass)


def log_last(trainer: L.Trainer, metrics: Mapping[str, float], epoch: int) -> None:
    """Log figures of the last epoch from a hook in which a module may not log any more.

    They get the step of all figures that are logged at the end of that epoch.
    """
    tensors = {name: torch.tensor(value) for name, value in metrics.items()}
    trainer.callback_metrics.update(tensors)
    trainer.logged_metrics.update(tensors)
    epochs = trainer.fit_loop.epoch_progress.current
    # a checkpoint that was saved after a validation does not count the last batch yet
    counted = getattr(epochs, "processed") == getattr(epochs, "started")
    step = trainer.fit_loop.epoch_loop._batches_that_stepped - int(counted)
    for logger in trainer.loggers:
        logger.log_metrics({**metrics, "epoch": epoch}, step=step)
        logger.save()


def passes_of(checkpoint: Mapping[str, Any]) -> float | None:
    """Return how often a checkpoint's weights have gone through their training set, if it says."""
    kept = checkpoint.get(_PASSES)
    return None if kept is None else float(kept)


class Ending(L.Callback):
    """Writes into checkpoints how far the training came, and lets a run that was stopped stay so.

    Checkpoints do not say that `EarlyStopping` or another callback has ended the training: a run
    killed while its last epoch is measured would train another one. ``min_epochs`` or
    ``min_steps`` let it train all the same. A `Timer` decides anew, by the time it is given.
    """

    def __init__(self) -> None:
        self._stopped = False

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note the passes through the training set, and whether the fit was told to stop."""
        batches = trainer.fit_loop.epoch_loop.batch_progress.current
        between = batches.ready == getattr(batches, "processed")
        told = trainer.should_stop and _may_stop(trainer) and not _out_of_time(trainer)
        checkpoint[_STOPPED] = bool(told and between)
        checkpoint[_PASSES] = passes(trainer)

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Recall whether it was."""
        self._stopped = bool(checkpoint.get(_STOPPED, False))

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stop again, and say so."""
        if self._stopped:
            trainer.should_stop = True
            rank_zero_info(
                "this run was told to stop and has nothing left to train;"
                " --trainer.min_epochs lets it train on"
            )


def _out_of_time(trainer: L.Trainer) -> bool:
    # the trainer sets `callbacks` through a connector, which its annotations do not show
    listed: list[L.Callback] = getattr(trainer, "callbacks")
    left = [each.time_remaining() for each in listed if isinstance(each, Timer)]
    return any(seconds is not None and seconds <= 0 for seconds in left)
