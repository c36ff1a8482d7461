"""Communication between the processes of a distributed run about a probe."""

from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch.distributed as dist

from qpriv.paradigms.ranks import world

T = TypeVar("T")
PATIENCE = timedelta(days=30)
"""Timeout of `gather`: a finished rank waits for slow ones; the loss of a rank ends the wait."""


def meet() -> None:
    """Create the process group of `gather`; every rank must call this before its long work."""
    if world() > 1:
        _patient_group(dist.group.WORLD)


def gather(mine: list[T]) -> list[T]:
    """Return the entries of all ranks on every rank, interleaved.

    The order is each rank's first entry, then each rank's second, and so on. This inverts
    ``items[rank::world_size]``.
    """
    if world() == 1:
        return mine
    shares: list[list[T]] = [[] for _ in range(world())]
    dist.all_gather_object(shares, mine, group=_patient_group(dist.group.WORLD))
    longest = max(map(len, shares))
    return [share[i] for i in range(longest) for share in shares if i < len(share)]


@cache
def _patient_group(world: dist.ProcessGroup | None) -> Any:  # noqa: ANN401 - torch's own is a union
    """Return a group of all ranks whose timeout exceeds the duration of an attack.

    The default group of the training times out after half an hour or less. This group uses gloo
    on the CPU, because waiting in NCCL keeps GPUs busy. ``world`` is part of the cache key,
    because the next run of this process has another default group.
    """
    return dist.new_group(timeout=PATIENCE, backend="gloo")
