"""In which precision a victim is attacked: the one its trainer lets it compute in."""

from collections.abc import Iterator
from contextlib import contextmanager

import lightning as L
import torch

from qpriv.models.precision import new_tensors


@contextmanager
def precision_of(module: L.LightningModule) -> Iterator[None]:
    """Let a module, and models that mimic it, compute as in a step of its trainer.

    New tensors are float32 all the same: what an attacker makes for itself is not the victim's.

    Args:
        module: The victim; without a trainer it computes as it is.
    """
    trainer: L.Trainer | None = getattr(module, "_trainer", None)
    if trainer is None:
        yield
        return
    with trainer.precision_plugin.forward_context(), new_tensors(torch.float32):
        yield
