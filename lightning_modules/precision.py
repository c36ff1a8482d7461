"""The trainer's precision: which precisions work, and how losses are scaled."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.optim import Optimizer

from qpriv.errors import ConfigError

_WEIGHTS = {"16-true": torch.float16, "bf16-true": torch.bfloat16, "64-true": torch.float64}
_PRODUCTS = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


def weights_under(trainer: L.Trainer, loaded: torch.dtype) -> torch.dtype:
    """Return the dtype in which a trainer keeps weights that were loaded in ``loaded``."""
    return _WEIGHTS.get(str(trainer.precision), loaded)


def check_precision(trainer: L.Trainer, loaded: torch.dtype = torch.float32) -> None:
    """Check the trainer's precision against the dtype of the loaded weights.

    Args:
        trainer: The trainer.
        loaded: Dtype in which the module loads its frozen weights; float32 fits every precision.

    Raises:
        ConfigError: If the precision trains nothing, or contradicts ``loaded``.
    """
    precision = str(trainer.precision)
    kept, products = _WEIGHTS.get(precision), _PRODUCTS.get(precision)
    name, where = str(loaded).removeprefix("torch."), "--trainer.precision"
    if precision == "16-true" and trainer.state.fn == "fit":
        raise ConfigError(
            "16-true trains nothing: steps of AdamW are no numbers in float16",
            where=where,
            remedy="use bf16-true, or 16-mixed",
        )
    if loaded != torch.float32 and (kept or products or loaded) != loaded:
        raise ConfigError(
            f"weights are loaded in {name}, and {precision} computes in another type",
            where=where,
            remedy=f"use {_fitting(loaded)}, or --model.dtype float32",
        )


def _fitting(loaded: torch.dtype) -> str:
    return "16-mixed" if loaded == torch.float16 else "bf16-mixed or bf16-true"


class TrainerScaling:
    """Runs backward passes and optimiser steps of manual optimisation through the trainer.

    Implements `qpriv.paradigms.scaling.Scaling`. Under ``16-mixed`` the trainer's precision plugin
    scales the loss, and unscales the gradients before the optimiser steps.

    Args:
        module: The module, attached to its trainer.
    """

    def __init__(self, module: L.LightningModule) -> None:
        self._module = module
        self._plugin: Any = module.trainer.precision_plugin

    @property
    def scale(self) -> float:
        """Return the loss scale; 1 without a scaler."""
        scaler: torch.amp.GradScaler | None = getattr(self._plugin, "scaler", None)
        return 1.0 if scaler is None else float(scaler.get_scale())

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss to the weights' gradients."""
        self._module.manual_backward(loss)

    def step(self, optimizer: Optimizer, values: Sequence[Tensor] | None = None) -> None:
        """Take an optimiser step.

        Args:
            optimizer: The optimiser.
            values: Gradients to pass to the optimiser directly; the scaler is then bypassed,
                because the weights hold no gradients for it.
        """
        if values is None:
            optimizer.step()
            return
        with self._unscaled():
            optimizer.step(values=values)  # type: ignore[call-overload]

    @contextmanager
    def _unscaled(self) -> Iterator[None]:
        scaler = getattr(self._plugin, "scaler", None)
        if scaler is None:
            yield
            return
        self._plugin.scaler = None
        try:
            yield
        finally:
            self._plugin.scaler = scaler
