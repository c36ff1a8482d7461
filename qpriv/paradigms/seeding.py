"""Seeding by (seed, epoch, batch, rank), and a context that restores random states."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_step(seed: int, epoch: int, batch: int, rank: int = 0) -> None:
    """Seed Python, NumPy and torch for one training step.

    Dropout and augmentation then depend only on the arguments: neither a resume nor a callback
    that draws random numbers can change them.

    Args:
        seed: Seed of the run.
        epoch: Epoch, from 0.
        batch: Batch in the epoch, from 0.
        rank: Rank of the process.
    """
    state = np.random.SeedSequence((seed, epoch, batch, rank)).generate_state(2, np.uint64)
    random.seed(int(state[0]))
    np.random.seed(int(state[0] >> np.uint64(32)))
    torch.manual_seed(int(state[1] >> np.uint64(1)))


@contextmanager
def preserved_random() -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch after the body.

    >>> torch.manual_seed(0); expected = torch.rand(1); torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch...>
    <torch...>
    >>> with preserved_random():
    ...     _ = torch.rand(3)
    >>> torch.equal(torch.rand(1), expected)
    True
    """
    python, array = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
