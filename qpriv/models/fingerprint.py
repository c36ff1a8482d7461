"""A hash of weights and settings, so that a cache notices when either changes."""

import hashlib
from collections.abc import Iterable

import torch
from torch import nn


def fingerprint(modules: Iterable[nn.Module], settings: Iterable[str]) -> str:
    """Return a hash of all weights, their names and types, and of the settings, 32 hex digits.

    >>> fingerprint([], ["crop 336"]) == fingerprint([], ["crop 224"])
    False
    """
    digest = hashlib.sha256()
    for module in modules:
        for name, weight in sorted(module.state_dict().items()):
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)};".encode())
            digest.update(weight.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    digest.update(repr(tuple(settings)).encode())
    return digest.hexdigest()[:32]
