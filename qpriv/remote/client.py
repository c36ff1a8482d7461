"""`RemoteClient`: a client's side of a run, which survives restarts of either side."""

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping

from qpriv.transport import Connection, ConnectionLost, Message, TransportError

logger = logging.getLogger(__name__)

_SHORTEST, _LONGEST = 0.02, 2.0
"""Seconds between two requests that ask whether it is this client's turn."""

RoundEnd = Callable[[int, float | None], None]
"""Told the round, and the loss if this client has trained in it."""


class RemoteClient(ABC):
    """Takes part in a run until its last round is done.

    Args:
        connect: Opens a connection to the server.
        terms: The settings that must agree with the server's.
        patience: Seconds that the client waits for a lost server.
        on_round: Called after every round.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        terms: Mapping[str, str],
        patience: float = 600.0,
        on_round: RoundEnd = lambda number, loss: None,
    ) -> None:
        self.connect, self.terms, self.patience = connect, terms, patience
        self.on_round = on_round
        self._links: list[Connection] = []

    def run(self) -> None:
        """Train together with the other clients, from this client's state to the last round.

        Raises:
            ConnectionLost: If the server stays away for longer than the patience.
            TransportError: If the server refuses something.
        """
        self._lost: float | None = None
        while True:
            try:
                with self.connect() as connection:
                    self._links.append(connection)
                    self._visit(connection)
                    return
            except ConnectionLost as error:
                self._endure(error)

    def crossed(self) -> Counter[str]:
        """Return the bytes of tensors by ``kind/direction``, those sent twice included."""
        return sum((connection.kinds for connection in self._links), start=Counter())

    def _visit(self, connection: Connection) -> None:
        welcome = connection(Message("hello", note=self.terms))
        self._lost = None
        try:
            numbers = int(welcome.note["rounds"]), int(welcome.note["steps"])
        except (KeyError, ValueError) as error:
            raise TransportError("the server does not say how long the run is") from error
        self.attend(connection, welcome.round, *numbers)
        connection(Message("done"))

    @abstractmethod
    def attend(self, connection: Connection, done: int, rounds: int, steps: int) -> None:
        """Train the rounds that are left.

        Args:
            connection: The line to the server.
            done: Rounds that the server knows this client to have finished.
            rounds: Rounds of the run.
            steps: Optimiser steps that every schedule spans.
        """

    def wait(self, connection: Connection, number: int) -> Message:
        """Return the server's answer once there is something to do in a round."""
        pause = _SHORTEST
        while (answer := connection(Message("begin", round=number))).type == "wait":
            time.sleep(pause)
            pause = min(_LONGEST, 1.5 * pause)
        return answer

    def _endure(self, error: ConnectionLost) -> None:
        """Wait a little for a server that is gone, or raise what it was lost by."""
        now = time.monotonic()
        if self._lost is None:
            self._lost = now
            logger.warning("%s. Trying for %g s", error, self.patience)
        if now - self._lost > self.patience:
            raise error
        time.sleep(min(_LONGEST, self.patience / 10))
