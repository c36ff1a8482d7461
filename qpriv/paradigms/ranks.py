"""Communication between processes by `torch.distributed`; a single process needs none."""

import torch
import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    """Return the rank of this process."""
    return dist.get_rank() if _together() else 0


def world() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if _together() else 1


def broadcast(tensor: Tensor, source: int) -> Tensor:
    """Broadcast a tensor from one process to all; the tensor is filled in place."""
    if world() > 1:
        dist.broadcast(tensor, source)
    return tensor


def broadcast_state(state: dict[str, Tensor], source: int) -> dict[str, Tensor]:
    """Broadcast named weights from one process to all, in one message."""
    if world() == 1:
        return state
    flat = broadcast(torch.cat([value.flatten() for value in state.values()]), source)
    pieces = torch.split(flat, [value.numel() for value in state.values()])
    return {n: p.view_as(v) for (n, v), p in zip(state.items(), pieces, strict=True)}


def mean(number: int, device: torch.device) -> float:
    """Return the mean of a number over all processes."""
    if not _together():
        return number
    total = torch.tensor(float(number), dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def _together() -> bool:
    return dist.is_available() and dist.is_initialized()
