"""The precision of an attacked victim: that of its trainer."""

from collections.abc import Iterator
from contextlib import contextmanager

import lightning as L
import torch

from qpriv.models.precision import new_tensors


@contextmanager
def precision_of(module: L.LightningModule) -> Iterator[None]:
    """Run the body in the precision of a training step, for the module and models that mimic it.

    New tensors are still float32, because the attacker's own tensors do not follow the victim's
    precision.

    Args:
        module: The victim; without a trainer its precision does not change.
    """
    trainer: L.Trainer | None = getattr(module, "_trainer", None)
    if trainer is None:
        yield
        return
    with trainer.precision_plugin.forward_context(), new_tensors(torch.float32):
        yield
