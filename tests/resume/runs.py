"""Runs in processes of their own, up to an end, and all that they leave behind."""

import multiprocessing
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch

from callbacks.runtime.checkpoint_io import AtomicCheckpointIO
from qpriv.curve import CURVES_FILE, read_curves
from qpriv.result import CLOCK_FILE
from tests.resume.moments import End, start

TIMEOUT = 600.0


def started(folder: Path, words: list[str], end: End | None) -> ForkServerProcess:
    """Start a command in a process forked from one that has imported everything and done nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.resume.moments"])
    child = context.Process(target=start, args=(words, folder, end))
    child.start()
    return child


def exit_code(child: ForkServerProcess) -> int | None:
    child.join(TIMEOUT)
    return child.exitcode


def output(folder: Path) -> str:
    return (folder / "output.txt").read_text()


def run_through(folder: Path, words: list[str]) -> float:
    """Run to the end; return the seconds it took."""
    began = time.monotonic()
    assert exit_code(started(folder, words, None)) == 0, output(folder)[-3000:]
    return time.monotonic() - began


def everything(folder: Path) -> dict[str, Any]:
    """Return all that a run leaves behind, but for its times, with tensors as bytes."""
    run = folder / "run"
    found: dict[str, Any] = {
        path.name: path.read_bytes().splitlines()
        for path in run.glob("*.jsonl")
        if path.name not in (CLOCK_FILE, CURVES_FILE)
    }
    found[CURVES_FILE] = sorted(map(repr, read_curves(run / CURVES_FILE)))  # the later one holds
    for pattern in ("probes/**/*.json", "oracle.json", "**/*.safetensors"):
        found |= {str(path.relative_to(run)): path.read_bytes() for path in run.glob(pattern)}
    for kind in ("best", "last"):
        stored = AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / f"{kind}.ckpt")
        found |= leaves(stored, kind)
    return found


def leaves(tree: Any, name: str) -> dict[str, Any]:
    """Return the values of a nested state by name."""
    if isinstance(tree, torch.Tensor):
        return {name: (tree.dtype, tree.shape, tree.numpy().tobytes())}
    if isinstance(tree, list | tuple):
        tree = dict(enumerate(tree))
    if not isinstance(tree, dict):
        return {name: tree}
    # the trainer's checkpoint callback writes this, never reads it, and forgets it at a restart
    inner = {key: value for key, value in tree.items() if key != "current_score"}
    return {n: v for key, value in inner.items() for n, v in leaves(value, f"{name}/{key}").items()}


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
