"""`RemoteSplitClient`: a client of split learning, on its own machine."""

from collections.abc import Callable, Mapping

from qpriv.models.batch import VQABatch
from qpriv.paradigms.seeding import preserved_random, seed_step
from qpriv.paradigms.split_client import SplitClient
from qpriv.paradigms.split_server import Answers
from qpriv.transport import Connection, Message

from .client import RemoteClient, RoundEnd
from .snapshots import Snapshots

Rows = Callable[[int], VQABatch | None]
"""A client's own rows of the batch of a round, or None where it has none."""


class RemoteSplitClient(RemoteClient):
    """Trains a `SplitClient` in its turns.

    Args:
        connect: Opens a line to the server.
        terms: What it agrees on with the server.
        number: Its own number.
        build: Makes the client, given the server and the steps of the run.
        rows: Its data by round; the same each time it is asked.
        snapshots: Where it writes its state before it commits a turn.
        seed: Seed of its dropout.
        patience: Seconds it waits for a server that is gone.
        on_round: Called after every round.
        on_end: Called with the client when training is done, while the server still answers.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        terms: Mapping[str, str],
        number: int,
        build: Callable[[Answers, int], SplitClient],
        rows: Rows,
        snapshots: Snapshots,
        seed: int = 0,
        patience: float = 600.0,
        on_round: RoundEnd = lambda number, loss: None,
        on_end: Callable[[SplitClient], None] = lambda client: None,
    ) -> None:
        super().__init__(connect, terms, patience, on_round)
        self.number, self.build, self.rows = number, build, rows
        self.snapshots, self.seed, self.on_end = snapshots, seed, on_end
        self._client: SplitClient | None = None

    def attend(self, connection: Connection, done: int, rounds: int, steps: int) -> None:
        """Train the rounds that are left.

        Raises:
            CheckpointError: If this folder does not hold the round the server is at.
        """
        client = self._settled(connection, done, steps)
        for number in range(done, rounds):
            self.wait(connection, number)
            loss = self._turn(client, number)
            client.scheduler.step()
            # write the state before the commit, so that both can return to it after a crash
            self.snapshots.write(number + 1, client.state())
            connection(Message("commit", round=number))
            self.on_round(number, loss)
        self.wait(connection, rounds)  # until the others are done as well
        client.model.eval()
        self.on_end(client)

    def _turn(self, client: SplitClient, number: int) -> float | None:
        rows = self.rows(number)
        if rows is None:
            return None
        with preserved_random():
            seed_step(self.seed, number, 0, self.number)
            return client.turn(rows.to(client.device))

    def _settled(self, connection: Connection, done: int, steps: int) -> SplitClient:
        """Return the client as it was after the rounds that the server has noted."""
        if self._client is None:
            self._client = self.build(connection, steps)
            if not self.snapshots.numbers():
                self.snapshots.write(0, self._client.state())
        client = self._client
        client.server = lambda message: connection(message).to(client.device)
        client.load_state(self.snapshots.read(done))
        self.snapshots.forget_after(done)
        return client
