"""`process_restored`: restore a process's random states, global settings and environment."""

import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.backends import cudnn


@dataclass(frozen=True)
class _Switch:
    """A global setting of the process; a change affects every later training step."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


def _set_deterministic(state: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(state[0], warn_only=state[1])


def _set_cudnn(state: tuple[bool, bool]) -> None:
    cudnn.benchmark, cudnn.deterministic = state


def _set_environment(state: dict[str, str]) -> None:
    # `seed_everything` stores its seed in the environment, and later training steps read it
    for name in os.environ.keys() - state.keys():
        del os.environ[name]
    os.environ.update(state)


_SWITCHES = (
    _Switch("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    _Switch("number of threads", torch.get_num_threads, torch.set_num_threads),
    _Switch(
        "deterministic algorithms",
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        _set_deterministic,
    ),
    _Switch(
        "precision of matrix products",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    _Switch("cuDNN", lambda: (cudnn.benchmark, cudnn.deterministic), _set_cudnn),
    _Switch("environment", lambda: dict(os.environ), _set_environment),
)


@contextmanager
def process_restored(gpus: Iterable[int], seed: int) -> Iterator[None]:
    """Run the body with its own random numbers, then restore the whole process.

    Args:
        gpus: Indices of the CUDA devices whose random state is saved.
        seed: Seed of the body's random numbers.
    """
    python, numpy = random.getstate(), np.random.get_state()
    states = [switch.read() for switch in _SWITCHES]
    with torch.random.fork_rng(devices=list(gpus)):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            for switch, state in zip(_SWITCHES, states, strict=True):
                if switch.read() != state:  # setting some switches warns even without a change
                    switch.write(state)


def process_marks() -> dict[str, bytes]:
    """Return the state of the process by name, as bytes for comparison."""
    marks = {
        "python random state": repr(random.getstate()).encode(),
        "numpy random state": repr(np.random.get_state()).encode(),
        "torch random state": torch.get_rng_state().numpy().tobytes(),
    }
    return marks | {switch.name: repr(switch.read()).encode() for switch in _SWITCHES}
