"""Checks for trainer settings that the modules ignore or cannot follow."""

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
"""Trainer settings without effect under manual optimisation: default value and remedy."""

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
"""Callbacks that do not work with the suite's modules: reason and remedy."""
_STEPPING: Table = {
    GradientAccumulationScheduler: ("the module takes its steps itself", _ACCUMULATION),
}
"""Callbacks that do not work under manual optimisation: reason and remedy."""


def refuse(trainer: L.Trainer, module: L.LightningModule) -> None:
    """Check the trainer's settings before data or weights load.

    Raises:
        ConfigError: If the module cannot follow a setting; the message names the setting.
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
    # the trainer sets `callbacks` through a connector, so its annotations lack the attribute
    listed: list[L.Callback] = getattr(trainer, "callbacks")
    for callback in listed:
        _refuse_callback(callback, module)


def refuse_sharding(strategy: object) -> None:
    """Check that a strategy does not shard the trained weights over processes.

    Args:
        strategy: A trainer's strategy, or its name.

    Raises:
        ConfigError: If it shards them.
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
    # `Tuner` ends the fit in which it searches; the next fit builds a new schedule
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
    """Let a ``fast_dev_run`` write into the returned temporary folder, which deletes itself."""
    folder = tempfile.TemporaryDirectory(prefix="qpriv-trial-")
    # all callbacks read this attribute, and the trainer has no public way to change it
    setattr(trainer, "_default_root_dir", folder.name)
    return folder
