"""Settings of a trainer that would do nothing here, or something else: each is refused by name."""

import tempfile
from collections.abc import Mapping

import lightning as L
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy

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

Table = Mapping[type[L.Callback], tuple[str, str]]
_CALLBACKS: Table = {
    LearningRateFinder: (
        "the schedule is made before the rate is found",
        "use Tuner.lr_find before the fit",
    ),
    BatchSizeFinder: (
        "the schedule is made before the size is found",
        "use Tuner.scale_batch_size before the fit",
    ),
    BackboneFinetuning: (
        "adapters and heads are trained, and all else stays frozen",
        "leave it out",
    ),
    ModelPruning: (
        "it renames weights, and checkpoints go by their names",
        "leave it out; VQAModule prunes visual tokens by --model.policy",
    ),
    StochasticWeightAveraging: (
        "it copies the module before weights load, and would average none",
        "leave it out",
    ),
    WeightAveraging: (
        "checkpoints would hold the frozen weights as well, and could not be gone on with",
        "leave it out",
    ),
}
"""What cannot be done to modules of the suite: why not, and a remedy."""
_STEPPING: Table = {
    GradientAccumulationScheduler: ("the module takes its steps itself", _ACCUMULATION),
}
"""What cannot be done to a module that steps by itself."""


def refuse(trainer: L.Trainer, module: L.LightningModule) -> None:
    """Refuse what a fit could not do as it is asked to, before data or weights load.

    Raises:
        ConfigError: If it is asked for something of that kind; names the setting that does it.
    """
    refuse_sharding(trainer.strategy)
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


def refuse_sharding(strategy: object) -> None:
    """Refuse a strategy that divides all weights among processes, whatever a module trains.

    Args:
        strategy: A trainer's, or its name.

    Raises:
        ConfigError: If it is one.
    """
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    kinds = FSDPStrategy | ModelParallelStrategy | DeepSpeedStrategy
    begins = ("fsdp", "deepspeed", "modelparallel")
    if isinstance(strategy, kinds) or name.rpartition(".")[2].lower().startswith(begins):
        raise ConfigError(
            f"{name} divides what is trained as well, which checkpoints hold whole",
            where="--trainer.strategy",
            remedy="use ddp; VQAModule divides a decoder by --model.shard true (scale/fsdp.yaml)",
        )


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
    # `Tuner` ends the fit in which it searches; the schedule of the next one is made anew
    by_tuner = getattr(callback, "_early_exit", False)
    told = _clients(callback, module) if by_tuner else _found(_CALLBACKS, callback)
    if told is None and not module.automatic_optimization:
        told = _found(_STEPPING, callback)
    if told is not None:
        what, remedy = told
        name = type(callback).__name__
        raise ConfigError(f"{name}: {what}", where="trainer.callbacks", remedy=remedy)


def _clients(callback: L.Callback, module: L.LightningModule) -> tuple[str, str] | None:
    parties: int = getattr(getattr(module, "paradigm", None), "num_clients", 1)
    if isinstance(callback, LearningRateFinder) and parties > 1:
        return "clients have optimisers of their own", "search with one client"
    return None


def _found(table: Table, callback: L.Callback) -> tuple[str, str] | None:
    return next((told for kind, told in table.items() if isinstance(callback, kind)), None)


def write_nowhere(trainer: L.Trainer) -> tempfile.TemporaryDirectory[str]:
    """Let a trial run (``fast_dev_run``) write into a folder that vanishes with what is returned."""
    folder = tempfile.TemporaryDirectory(prefix="qpriv-trial-")
    # a trainer offers no way to change it, and every callback of a run asks it
    setattr(trainer, "_default_root_dir", folder.name)
    return folder
