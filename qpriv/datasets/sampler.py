"""Orders of samples that depend on (seed, epoch) alone, so that a run can be killed and resumed."""

from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

T = TypeVar("T")


class EpochSampler(DistributedSampler[int]):
    """The order of one epoch: a function of (seed, epoch), cut into ranks.

    It is a `DistributedSampler` so that trainers leave it alone. Shuffled, every rank gets
    equally many samples (up to ``world_size - 1`` of the permutation's end wait for another
    epoch, as ranks must take equally many steps); in order, nothing is dropped and nothing
    repeated, so that 33 samples count as 33 on any number of ranks.

    Args:
        dataset: What is sampled; only its length is read.
        seed: Seed of the order.
        shuffle: Permute in every epoch; else the order of the data set.
        rank: This process.
        world_size: Number of processes.
        even: In order, begin again at the end until every rank has equally many samples; for
            processes that must take equally many steps. Who measures counts each sample once.

    >>> sampler = EpochSampler(range(5), seed=1, shuffle=False, rank=1, world_size=2)
    >>> list(sampler), len(sampler)
    ([1, 3], 2)
    >>> list(EpochSampler(range(5), shuffle=False, rank=1, world_size=2, even=True))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Sized,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
        even: bool = False,
    ) -> None:
        super().__init__(cast(Dataset[int], dataset), world_size, rank, shuffle, seed)
        self.size, self.even = len(dataset), even
        self.start = 0
        """Samples of this rank that are skipped: how far the epoch had come before a resume."""

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's sample numbers, from ``start``."""
        yield from self.order()[self.start :]

    def __len__(self) -> int:
        """Return the number of samples of this rank in a whole epoch."""
        return len(range(self.rank, self._usable, self.num_replicas))

    def order(self) -> list[int]:
        """Return this rank's sample numbers of the whole epoch."""
        indices = np.arange(self._usable) % self.size
        if self.shuffle:
            indices = np.random.default_rng((self.seed, self.epoch)).permutation(self.size)
        order: list[int] = indices[self.rank : self._usable : self.num_replicas].tolist()
        return order

    @property
    def _usable(self) -> int:
        if self.shuffle:
            return self.size - self.size % self.num_replicas
        return self.size + -self.size % self.num_replicas if self.even else self.size


class ResumableLoader(DataLoader[T]):
    """A loader that knows its position and draws nothing from the global random numbers.

    Its state is where the epoch had come to; loading it makes the next epoch of that number
    start there, without reading what was already seen. Workers are seeded from (seed, epoch).

    Args:
        dataset: What is loaded.
        batch_size: Samples a batch.
        sampler: The order.
        collate: Turns a list of samples into a batch.
        num_workers: Processes that load; 0 is this one.
    """

    sampler: EpochSampler

    def __init__(
        self,
        dataset: Dataset[T],
        *,
        batch_size: int,
        sampler: EpochSampler,
        collate: Callable[[Sequence[T]], Any],
        num_workers: int = 0,
    ) -> None:
        self.position = 0
        self._resume: tuple[int, int] | None = None
        super().__init__(
            dataset,
            batch_size=batch_size,
            sampler=sampler,
            collate_fn=collate,
            num_workers=num_workers,
            generator=torch.Generator(),
        )

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Yield the batches of the epoch; in a resumed epoch, those that are left."""
        epoch, position = self.sampler.epoch, 0
        if self._resume is not None and self._resume[0] == epoch:
            position = self._resume[1]
        self._resume = None
        self.position = position
        self.sampler.start = position * int(self.batch_size or 1)
        self.generator.manual_seed(_mix(self.sampler.seed, epoch))
        for batch in super().__iter__():
            self.position += 1
            yield batch

    @contextmanager
    def one_back(self) -> Iterator[None]:
        """Temporarily report the last batch as not yet consumed."""
        self.position -= 1
        try:
            yield
        finally:
            self.position += 1

    def batches(self, start: int, stop: int) -> list[Any]:
        """Return some batches of the sampler's epoch again, read in this process."""
        order, size = self.sampler.order(), int(self.batch_size or 1)
        rows = [order[number * size : (number + 1) * size] for number in range(start, stop)]
        return [self.collate_fn([self.dataset[index] for index in own]) for own in rows]

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of batches it has given out."""
        return {"epoch": self.sampler.epoch, "batch": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore a saved position; it applies when its epoch is next requested."""
        self._resume = (state["epoch"], state["batch"])
        self.position = state["batch"]
        self.sampler.set_epoch(state["epoch"])


def _mix(*numbers: int) -> int:
    """Return one 63-bit seed made of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
