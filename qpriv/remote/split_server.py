"""`RemoteSplitServer`: clients train in turn against a `Server`, and no finished turn is lost.

A turn is ``begin``, the messages of one step, ``commit``. What happens in between is provisional:
if the client falls silent or sends nonsense, the server goes back to the last commit. A client
writes its own state down before it commits, so it is never behind the server and at most one
round ahead; then it goes back one round, and both go on from the same place.
"""

from collections.abc import Mapping
from typing import Any

from qpriv.paradigms.seeding import preserved_random, seed_step
from qpriv.paradigms.split_server import Generation, Server
from qpriv.transport import Message, TransportError

from .server import RemoteServer
from .snapshots import Snapshots

_STREAM = 1_000_000
"""Where the server's random numbers lie, away from those of any client."""


class RemoteSplitServer(RemoteServer):
    """The server's side of split learning, U-shaped or not.

    Args:
        server: Its layers and their optimiser.
        terms: What a client must agree on.
        clients: Number of clients.
        rounds: Number of rounds; every client has one turn in each.
        snapshots: Where it writes its state after every turn.
        seed: Seed of the server's dropout.
    """

    def __init__(
        self,
        server: Server,
        terms: Mapping[str, str],
        clients: int,
        rounds: int,
        snapshots: Snapshots,
        seed: int = 0,
    ) -> None:
        super().__init__(terms, clients, rounds, rounds)
        self.server, self.snapshots, self.seed = server, snapshots, seed
        self.turn = 0
        self._visitor: int | None = None
        self._messages, self._unstepped = 0, False
        self._generations: dict[int, Generation | None] = {}
        if snapshots.numbers():
            self._restore()
        else:
            snapshots.write(0, self._state())

    def welcome(self, client: int) -> int:
        """Drop what a client has left open, and return how many rounds it has finished."""
        if self._visitor == client:
            self._restore()
        return self.round + (client < self.turn)

    def serve(self, client: int, message: Message) -> Message:
        """Return the answer to a client of this run."""
        if message.type == "begin":
            return self._begin(client, message.round)
        if message.type == "generate":
            return self._generate(client, message)
        if client != self._visitor:
            raise TransportError(f"client{client} has no turn", remedy="begin one")
        if message.type == "commit":
            return self._commit()
        return self._learn(client, message)

    def _begin(self, client: int, number: int) -> Message:
        if number < self.welcome(client):
            raise TransportError(f"client{client} has finished round {number}")
        if self.round == self.rounds:
            return Message("done", round=self.round)
        if (number, client) != (self.round, self.turn):
            return Message("wait", round=self.round)
        self._visitor, self._messages, self._unstepped = client, 0, False
        self.server.client = client
        return Message("begin", round=number)

    def _learn(self, client: int, message: Message) -> Message:
        self._messages += 1
        try:
            with preserved_random():
                seed_step(self.seed, self.round, self._messages, _STREAM + client)
                self.server.segment.train()
                answer = self.server(message.to(self.server.device))
        except BaseException:
            self._restore()
            raise
        self._unstepped = message.type != "step"
        return answer

    def _commit(self) -> Message:
        if self._unstepped:
            raise TransportError("a turn ends with a step, not with a gradient")
        self.turn += 1
        if self.turn == self.clients:
            self.round, self.turn = self.round + 1, 0
            self.server.scheduler.step()
        self.snapshots.write(self.round * self.clients + self.turn, self._state())
        self._visitor = None
        return Message("commit", round=self.round)

    def _generate(self, client: int, message: Message) -> Message:
        if self.round < self.rounds:
            raise TransportError("answers are given when training is done")
        self.server.generation, self.server.client = self._generations.get(client), client
        self.server.segment.eval()
        answer = self.server(message.to(self.server.device))
        self._generations[client] = self.server.generation
        return answer

    def _state(self) -> dict[str, Any]:
        return {"party": self.server.state(), "round": self.round, "turn": self.turn}

    def _restore(self) -> None:
        state = self.snapshots.read(self.snapshots.numbers()[-1])
        self.server.load_state(state["party"])
        self.round, self.turn, self._visitor = state["round"], state["turn"], None
