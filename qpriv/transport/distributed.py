"""`torch.distributed` as the line: parties inside one cluster, where everybody is trusted.

There is no TLS and no proof of who is who here: a rank is whom it says it is. Rank 0 serves,
rank ``i + 1`` is client ``i``.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from qpriv.errors import ConfigError

from .connection import Connection, Endpoint, respond
from .identity import client_peer
from .wire import MAX_MESSAGE, too_large

SERVER_RANK = 0


class DistributedConnection(Connection):
    """A client's line to the server of its process group (a backend that sends CPU tensors).

    Args:
        max_message: Largest frame in bytes, either way.

    Raises:
        ConfigError: If there is no process group, or this is the server's rank.
    """

    def __init__(self, max_message: int = MAX_MESSAGE) -> None:
        super().__init__(max_message)
        if not dist.is_initialized() or dist.get_rank() == SERVER_RANK:
            raise ConfigError(
                "a client needs a process group and a rank of 1 or more",
                remedy="start it by torchrun, and serve on rank 0",
            )

    def exchange(self, frame: bytes) -> bytes:
        """Return the answer to a frame."""
        _send(frame, SERVER_RANK)
        answer, _ = _receive(SERVER_RANK, self.max_message)
        return answer

    def close(self) -> None:
        """Tell the server that nothing more will come."""
        _send(b"", SERVER_RANK)


def serve_ranks(endpoint: Endpoint, max_message: int = MAX_MESSAGE) -> None:
    """Answer the other ranks until each has hung up.

    Raises:
        TransportError: If a frame is too large: unlike a stream, a process group cannot drop it.
    """
    calling = dist.get_world_size() - 1
    while calling:
        frame, rank = _receive(None, max_message)
        if frame:
            _send(respond(endpoint, client_peer(rank - 1), frame, max_message), rank)
        else:
            calling -= 1


def _send(frame: bytes, rank: int) -> None:
    dist.send(torch.tensor([len(frame)]), rank)
    if frame:
        dist.send(torch.frombuffer(bytearray(frame), dtype=torch.uint8), rank)


def _receive(rank: int | None, limit: int) -> tuple[bytes, int]:
    """Return a frame and who sent it; None is whoever comes first."""
    size = torch.zeros(1, dtype=torch.int64)
    sender = dist.recv(size, rank)
    length = int(size)
    if length > limit:
        raise too_large(length, limit)
    frame: Tensor = torch.empty(length, dtype=torch.uint8)
    if length:
        dist.recv(frame, sender)
    return frame.numpy().tobytes(), sender
