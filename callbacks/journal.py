"""`Journal`: what a probe has already measured, on disk, so that a killed run loses nothing."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from callbacks.isolation import tensor_digest
from qpriv.result import Result, append_results, read_results
from qpriv.writing import whole_file, write_whole


class Journal:
    """Finished work items of one probe at one epoch, under ``<run>/probes/<probe>/epoch=<n>/``.

    An entry counts only for the very weights it was measured on: it carries a digest of the
    trainable parameters, so a new training in an old folder measures anew.

    Args:
        run_folder: Folder of the run.
        key: The probe's state key, which names its class and settings.
        epoch: Epoch after which the probe runs.
        module: The victim.
    """

    def __init__(self, run_folder: Path, key: str, epoch: int, module: nn.Module) -> None:
        label = f"{key.split('{')[0]}-{_short_hash(key)}"
        self.run_folder = run_folder
        self.folder = run_folder / "probes" / label
        self.entries = self.folder / f"epoch={epoch}"
        self.weights = weights_digest(module)

    def read(self, item: str) -> list[Result] | None:
        """Return the results of an item, or None if it is still to do."""
        path = self._path(item)
        if not path.exists():
            return None
        entry = msgspec.json.decode(path.read_bytes(), type=_Entry)
        return list(entry.results) if entry.weights == self.weights else None

    def write(self, item: str, results: Iterable[Result]) -> None:
        """Keep the results of a finished item; the file appears whole or not at all."""
        entry = _Entry(weights=self.weights, results=tuple(results))
        write_whole(self._path(item), msgspec.json.encode(entry))

    def publish(self, results: Iterable[Result]) -> None:
        """Append to the run's ``results.jsonl`` what is not in it yet."""
        path = self.run_folder / "results.jsonl"
        known = {_identity(result) for result in read_results(path)} if path.exists() else set()
        append_results(path, [result for result in results if _identity(result) not in known])

    def _path(self, item: str) -> Path:
        return self.entries / f"{item}.json"


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    weights: str
    results: tuple[Result, ...]


def weights_digest(module: nn.Module) -> str:
    """Return a digest of the parameters that are trained (of all, where none is)."""
    named = list(module.named_parameters())
    trained = [(name, p) for name, p in named if p.requires_grad] or named
    return _short_hash("".join(f"{name}{tensor_digest(p)}" for name, p in trained))


def save_state(state: dict[str, Any], path: Path) -> None:
    """Save tensors and numbers, to be loaded with ``torch.load(..., weights_only=True)``."""
    with whole_file(path) as file:
        torch.save(state, file)


def _identity(result: Result) -> bytes:
    return msgspec.json.encode(replace(result, note=""))


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]
