"""`ProbeCache`: saves a probe's finished work items, so that a killed run keeps them."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from callbacks.probes.isolation import tensor_digest
from qpriv.io import atomic_open, write_atomic
from qpriv.lines import current
from qpriv.result import Result, append_results


class ProbeCache:
    """Finished work items of one probe at one epoch, under ``<run>/probes/<probe>/epoch=<n>/``.

    An entry is valid only for the weights it was measured on: it stores a digest of the trainable
    parameters. A new training in an old folder therefore measures again.

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
        """Return the results of an item, or None if it has not been measured."""
        path = self._path(item)
        if not path.exists():
            return None
        entry = msgspec.json.decode(path.read_bytes(), type=_Entry)
        if entry.weights != self.weights:
            return None
        results = map(_with_setting, entry.results) if entry.old else entry.results
        return [current(result) for result in results]

    def write(self, item: str, results: Iterable[Result]) -> None:
        """Save the results of a finished item; the write is atomic."""
        entry = _Entry(weights=self.weights, results=tuple(results), old=False)
        write_atomic(self._path(item), msgspec.json.encode(entry))

    def publish(self, results: Iterable[Result]) -> None:
        """Write results to the run's ``results.jsonl``, replacing this probe's earlier ones.

        Raises:
            DataError: If another probe wrote a different value for the same figure.
        """
        append_results(self.run_folder / "results.jsonl", results)

    def _path(self, item: str) -> Path:
        return self.entries / f"{item}.json"


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    weights: str
    results: tuple[Result, ...]
    # entries of earlier versions lack the setting that distinguishes figures of one probe
    old: bool = True


def weights_digest(module: nn.Module) -> str:
    """Return a digest of the trainable parameters, or of all parameters if none is trainable."""
    named = list(module.named_parameters())
    trained = [(name, p) for name, p in named if p.requires_grad] or named
    return _short_hash("".join(f"{name}{tensor_digest(p)}" for name, p in trained))


def content_digest(path: Path) -> str:
    """Return a digest of a file, or of the names and contents of all files in a folder."""
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(path) if file != path else ''};".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:10]


def save_state(state: dict[str, Any], path: Path) -> None:
    """Save tensors and numbers, readable by ``torch.load(..., weights_only=True)``."""
    with atomic_open(path) as file:
        torch.save(state, file)


def _with_setting(result: Result) -> Result:
    """Add the setting to a result of an earlier version, taken from its ``attack`` entries."""
    own = {k: v for k, v in result.attack.items() if k in ("cut", "query_policy")}
    return replace(result, setting=own)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]
