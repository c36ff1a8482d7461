"""Random numbers that depend on (seed, epoch, batch), and a context that gives them back."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_step(seed: int, epoch: int, batch: int, rank: int = 0) -> None:
    """Seed python, numpy and torch for one training step.

    Dropout and augmentation then depend on these numbers alone: neither a resume nor a
    callback that draws random numbers can change them.
    """
    state = np.random.SeedSequence((seed, epoch, batch, rank)).generate_state(2, np.uint64)
    random.seed(int(state[0]))
    np.random.seed(int(state[0] >> np.uint64(32)))
    torch.manual_seed(int(state[1] >> np.uint64(1)))


@contextmanager
def preserved_random() -> Iterator[None]:
    """Leave the random numbers of python, numpy and torch as they were found.

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
