"""`Connection`: a client's connection to the server, with one subclass per transport."""

import logging
from abc import ABC, abstractmethod
from collections import Counter
from types import TracebackType
from typing import Protocol, Self

from qpriv.errors import QprivError

from .errors import TransportError
from .message import Message
from .wire import MAX_MESSAGE, decode, encode, too_large

logger = logging.getLogger(__name__)


class Endpoint(Protocol):
    """The server's end, which answers one message of an authenticated peer at a time."""

    def answer(self, peer: str, message: Message) -> Message:
        """Return the answer.

        Raises:
            QprivError: If it is refused; nothing has changed then.
        """
        ...


class Connection(ABC):
    """Sends a message and returns its answer; counts what crosses, in each direction.

    Args:
        max_message: Largest frame in bytes, either way.
    """

    def __init__(self, max_message: int = MAX_MESSAGE) -> None:
        self.max_message = max_message
        self.frames: Counter[str] = Counter()
        """Bytes of whole frames ``up`` and ``down``."""
        self.kinds: Counter[str] = Counter()
        """Bytes of tensors by ``kind/direction``, as `qpriv.split.Traffic` counts them."""

    def __call__(self, message: Message) -> Message:
        """Return the answer to a message.

        Raises:
            TransportError: If either end refuses it.
            ConnectionLost: If the server is gone.
        """
        frame = encode(message)
        if len(frame) > self.max_message:
            raise too_large(len(frame), self.max_message)
        self._count(message, "up", len(frame))
        returned = self.exchange(frame)
        answer = decode(returned, self.max_message)
        self._count(answer, "down", len(returned))
        if answer.type == "refused":
            raise TransportError(
                answer.note.get("what", "refused"),
                where=answer.note.get("where", ""),
                remedy=answer.note.get("remedy", ""),
            )
        return answer

    @abstractmethod
    def exchange(self, frame: bytes) -> bytes:
        """Return the answer to a frame.

        Raises:
            ConnectionLost: If the server is gone.
        """

    def close(self) -> None:
        """Hang up."""

    def __enter__(self) -> Self:
        """Return the connection itself, already open."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Hang up."""
        self.close()

    def _count(self, message: Message, direction: str, size: int) -> None:
        self.frames[direction] += size
        for name, tensor in message.tensors.items():
            kind = name.partition("/")[0]
            self.kinds[f"{kind}/{direction}"] += tensor.numel() * tensor.element_size()


class InprocConnection(Connection):
    """A line within one process: the same bytes as over a network, in a fixed order.

    Args:
        endpoint: The server's end.
        peer: Who is calling.
        max_message: Largest frame in bytes, either way.
    """

    def __init__(self, endpoint: Endpoint, peer: str, max_message: int = MAX_MESSAGE) -> None:
        super().__init__(max_message)
        self.endpoint, self.peer = endpoint, peer

    def exchange(self, frame: bytes) -> bytes:
        """Return the answer to a frame."""
        return respond(self.endpoint, self.peer, frame, self.max_message)


def respond(endpoint: Endpoint, peer: str, frame: bytes, limit: int = MAX_MESSAGE) -> bytes:
    """Return an endpoint's answer to a frame.

    An invalid frame gives a refusal with the reason, because a server must survive its clients'
    mistakes.
    """
    try:
        return encode(endpoint.answer(peer, decode(frame, limit)))
    except QprivError as error:
        logger.warning("refused %s: %s", peer, error)
        return encode(_refusal(error.what, error.where, error.remedy))
    except Exception:
        logger.exception("could not answer %s", peer)
        return encode(_refusal("the server failed to answer", "", "its log says why"))


def _refusal(what: str, where: str, remedy: str) -> Message:
    words = {"what": what, "where": where, "remedy": remedy}
    return Message("refused", note={key: word[:1000] for key, word in words.items()})
