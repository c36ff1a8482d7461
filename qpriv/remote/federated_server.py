"""`RemoteFederatedServer`: send the adapter, collect the clients' adapters, average them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from qpriv.paradigms.federated import Federated
from qpriv.transport import Message, TransportError

from .server import RemoteServer
from .snapshots import Snapshots

_ADAPTER = "adapter/"


class RemoteFederatedServer(RemoteServer):
    """The server's side of federated learning, which holds an adapter but no model.

    If the server dies, the adapters received in the open round are lost. Clients train the round
    again, from the same adapter and with the same random numbers, and so to the same weights.

    Args:
        start: The adapter that all clients start from.
        paradigm: Who takes part in a round, and how adapters are averaged.
        terms: What a client must agree on.
        rounds: Number of rounds.
        steps: Local optimiser steps of the whole run, which the schedule spans.
        snapshots: Where it writes the adapter after every round.
        seed: Seed of the draw of clients.
    """

    def __init__(
        self,
        start: Mapping[str, Tensor],
        paradigm: Federated,
        terms: Mapping[str, str],
        rounds: int,
        steps: int,
        snapshots: Snapshots,
        seed: int = 0,
    ) -> None:
        super().__init__(terms, paradigm.num_clients, rounds, steps)
        self.adapter = {name: value.cpu() for name, value in start.items()}
        self.paradigm, self.snapshots, self.seed = paradigm, snapshots, seed
        self.error = 0.0
        self._received: dict[int, tuple[dict[str, Tensor], int]] = {}
        if numbers := snapshots.numbers():
            state: dict[str, Any] = snapshots.read(numbers[-1])
            self.adapter, self.round = state["adapter"], state["round"]

    def welcome(self, client: int) -> int:
        """Return how many rounds are finished."""
        return self.round

    def serve(self, client: int, message: Message) -> Message:
        """Return the answer to a client of this run."""
        if message.type == "trained":
            return self._receive(client, message)
        if message.type != "begin":
            raise TransportError(f"a server of adapters does not {message.type}")
        named = {f"{_ADAPTER}{name}": value for name, value in self.adapter.items()}
        if self.round == self.rounds:
            return Message("done", named, round=self.round)
        if client in self._received or client not in self._clients():
            return Message("wait", round=self.round)
        return Message("train", named, round=self.round)

    def _clients(self) -> list[int]:
        return self.paradigm.clients_of_round(self.seed, self.round)

    def _receive(self, client: int, message: Message) -> Message:
        if message.round != self.round or client in self._received or client not in self._clients():
            raise TransportError(f"nothing of client{client} is awaited for round {message.round}")
        self._received[client] = self._checked(message), _samples(message)
        if len(self._received) == len(self._clients()):
            self._average()
        return Message("trained", round=message.round)

    def _average(self) -> None:
        sent = [self._received[client] for client in sorted(self._received)]
        adapters, counts = [own for own, _ in sent], [count for _, count in sent]
        self.adapter, self.error = self.paradigm.averaged(self.adapter, adapters, counts)
        self.round += 1
        self.snapshots.write(self.round, {"adapter": self.adapter, "round": self.round})
        self._received = {}

    def _checked(self, message: Message) -> dict[str, Tensor]:
        """Return a client's adapter, in the order of the server's own."""
        given = {
            name.removeprefix(_ADAPTER): value
            for name, value in message.tensors.items()
            if name.startswith(_ADAPTER)
        }
        return checked_adapter(given, self.adapter)


def checked_adapter(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a client's adapter in the order of the server's own.

    Raises:
        TransportError: If names, shapes or types differ, or a number is not finite.
    """
    if given.keys() != own.keys():
        names = sorted(given.keys() ^ own.keys())
        raise TransportError(f"an adapter of {len(given)} weights, which differs by {names[0]}")
    for name, expected in own.items():
        value = given[name]
        if (value.shape, value.dtype) != (expected.shape, expected.dtype):
            raise TransportError(f"{name} is {value.dtype} of shape {list(value.shape)}")
        if not bool(torch.isfinite(value).all()):
            raise TransportError(f"{name} holds numbers that are not finite")
    return {name: given[name] for name in own}


def _samples(message: Message) -> int:
    value = message.tensors.get("scalar/samples", torch.tensor([-1.0]))
    if not 0 <= float(value) <= 2**53 or float(value) != int(value):
        raise TransportError(f"an adapter trained on {float(value)} samples")
    return int(value)
