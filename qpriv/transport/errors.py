"""Errors of the communication between parties."""

from qpriv.errors import QprivError


class TransportError(QprivError):
    """A message that was refused: malformed, too large, out of turn, or from the wrong party."""


class ConnectionLost(TransportError):
    """The connection is lost, and the outcome of the last message is unknown. Try again later."""
