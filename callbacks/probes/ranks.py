"""What the processes of a distributed run tell each other about a probe."""

from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch.distributed as dist

from qpriv.paradigms.ranks import world

T = TypeVar("T")
PATIENCE = timedelta(days=30)
"""A rank that is done waits for the others as long as their items take; a dead one ends the wait."""


def meet() -> None:
    """Open the line that `gather` uses; every rank calls it before its own long work begins."""
    if world() > 1:
        _patient_group(dist.group.WORLD)


def gather(mine: list[T]) -> list[T]:
    """Return the entries of all ranks on every rank: first each rank's first, then the second ones.

    Undoes ``items[rank::world_size]``.
    """
    if world() == 1:
        return mine
    shares: list[list[T]] = [[] for _ in range(world())]
    dist.all_gather_object(shares, mine, group=_patient_group(dist.group.WORLD))
    longest = max(map(len, shares))
    return [share[i] for i in range(longest) for share in shares if i < len(share)]


@cache
def _patient_group(world: dist.ProcessGroup | None) -> Any:  # noqa: ANN401 - torch's own is a union
    """Return a group over all ranks whose patience outlasts an attack.

    Training's own group gives up after half an hour or less. Over CPUs, as GPUs would be kept
    busy with waiting. ``world`` is in the cache's key: the next run of this process has another.
    """
    return dist.new_group(timeout=PATIENCE, backend="gloo")
