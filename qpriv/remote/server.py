"""`RemoteServer`: the server's side of a run, which checks identities and terms of clients."""

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping

from qpriv.transport import Message, TransportError

from .handshake import check_terms

_CLIENT = re.compile(r"client(\d{1,6})")


class RemoteServer(ABC):
    """Answers clients one message at a time, after a successful handshake.

    Args:
        terms: The settings that must agree with a client's.
        clients: Number of clients.
        rounds: Number of rounds of the run.
        steps: Optimiser steps that every schedule spans.
    """

    def __init__(self, terms: Mapping[str, str], clients: int, rounds: int, steps: int) -> None:
        self.terms, self.clients, self.rounds, self.steps = terms, clients, rounds, steps
        self.round = 0
        self.finished = threading.Event()
        """Set when every client has reported that it is done."""
        self._lock = threading.Lock()
        self._greeted: set[int] = set()
        self._left: set[int] = set()

    def answer(self, peer: str, message: Message) -> Message:
        """Return the answer to a message of an authenticated peer.

        Raises:
            TransportError: If the peer is not of this run, has not said hello, or is out of turn.
        """
        with self._lock:
            client = self._number(peer)
            if message.type == "hello":
                check_terms(self.terms, message.note)
                self._greeted.add(client)
                note = {"rounds": str(self.rounds), "steps": str(self.steps)}
                return Message("hello", round=self.welcome(client), note=note)
            if client not in self._greeted:
                raise TransportError(f"{peer} has not said hello")
            if message.type == "done" and self.round == self.rounds:
                self._left.add(client)
                if len(self._left) == self.clients:
                    self.finished.set()
                return Message("done")
            return self.serve(client, message)

    @abstractmethod
    def welcome(self, client: int) -> int:
        """Admit a new or returning client, and return its number of finished rounds."""

    @abstractmethod
    def serve(self, client: int, message: Message) -> Message:
        """Return the answer to a client of this run."""

    def _number(self, peer: str) -> int:
        found = _CLIENT.fullmatch(peer)
        if found is None or int(found[1]) >= self.clients:
            raise TransportError(
                f"there is no {peer} in this run",
                where="--certificates",
                remedy=f"its parties are client0 to client{self.clients - 1}",
            )
        return int(found[1])
