"""Settings of a trainer that would do nothing here, or something else: each is refused by name."""

import tempfile

import lightning as L
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    StochasticWeightAveraging,
)

from qpriv.errors import ConfigError

_ACCUMULATION = (
    "set --data.batch_size to the samples of a step, --model.micro_batch_size to those of a pass"
)
_OWN_STEPS = {
    "accumulate_grad_batches": (1, _ACCUMULATION),
    "gradient_clip_val": (None, "gradients are clipped to the norm --model.clip"),
    "gradient_clip_algorithm": (None, "gradients are clipped by their norm, to --model.clip"),
}
"""What does nothing where a module steps by itself: the value that asks for nothing, and a remedy."""


def refuse(trainer: L.Trainer, module: L.LightningModule) -> None:
    """Refuse what a fit could not do as it is asked to, before data or weights load.

    Raises:
        ConfigError: If it is asked for something of that kind; names the setting that does it.
    """
    if trainer.state.fn != "fit":
        return
    if not module.automatic_optimization:
        _refuse_steps(trainer, module)
    elif trainer.gradient_clip_algorithm and trainer.gradient_clip_val is None:
        raise ConfigError(
            "there is no norm or value to clip to",
            where="--trainer.gradient_clip_algorithm",
            remedy="give --trainer.gradient_clip_val as well",
        )
    _refuse_batches(trainer)
    # the trainer sets `callbacks` through a connector, which its annotations do not show
    listed: list[L.Callback] = getattr(trainer, "callbacks")
    for callback in listed:
        _refuse_callback(callback, module)


def _refuse_steps(trainer: L.Trainer, module: L.LightningModule) -> None:
    for name, (nothing, remedy) in _OWN_STEPS.items():
        if getattr(trainer, name) != nothing:
            raise ConfigError(
                f"{type(module).__name__} takes its steps itself",
                where=f"--trainer.{name}",
                remedy=remedy,
            )


def _refuse_batches(trainer: L.Trainer) -> None:
    if trainer.overfit_batches and hasattr(trainer.datamodule, "max_train"):  # type: ignore[attr-defined]
        raise ConfigError(
            "batches of a run come in an order of their own, which it would replace",
            where="--trainer.overfit_batches",
            remedy="train on N samples by --data.max_train N",
        )
    if trainer.limit_train_batches == 0:
        raise ConfigError(
            "nothing would be trained",
            where="--trainer.limit_train_batches",
            remedy="choose 1 or more, or use qpriv validate",
        )


def _refuse_callback(callback: L.Callback, module: L.LightningModule) -> None:
    name = type(callback).__name__
    # `Tuner` ends the fit in which it searches; the schedule of the next one is made anew
    alone = getattr(callback, "_early_exit", False)
    parties: int = getattr(getattr(module, "paradigm", None), "num_clients", 1)
    told = None
    if isinstance(callback, LearningRateFinder) and alone and parties > 1:
        told = "the clients have optimisers of their own", "search with one client"
    elif isinstance(callback, LearningRateFinder) and not alone:
        told = "the schedule was made before the rate is found", "use Tuner.lr_find before the fit"
    elif isinstance(callback, BatchSizeFinder) and not alone:
        told = (
            "the schedule was made before the size is found",
            "use Tuner.scale_batch_size before the fit",
        )
    elif module.automatic_optimization:
        return
    elif isinstance(callback, GradientAccumulationScheduler):
        told = f"{type(module).__name__} takes its steps itself", _ACCUMULATION
    elif isinstance(callback, StochasticWeightAveraging):
        told = "its schedule does not reach a module that takes its steps itself", "leave it out"
    if told:
        raise ConfigError(f"{name}: {told[0]}", where="trainer.callbacks", remedy=told[1])


def write_nowhere(trainer: L.Trainer) -> tempfile.TemporaryDirectory[str]:
    """Let a trial run (``fast_dev_run``) write into a folder that vanishes with what is returned."""
    folder = tempfile.TemporaryDirectory(prefix="qpriv-trial-")
    # a trainer offers no way to change it, and every callback of a run asks it
    setattr(trainer, "_default_root_dir", folder.name)
    return folder
