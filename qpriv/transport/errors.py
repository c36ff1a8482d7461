"""What can go wrong between parties."""

from qpriv.errors import QprivError


class TransportError(QprivError):
    """A message that was refused: malformed, too large, out of turn, or from the wrong party."""


class ConnectionLost(TransportError):
    """The other party is gone; what it had promised is not known. Ask again later."""
