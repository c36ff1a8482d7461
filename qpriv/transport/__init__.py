"""How packets travel: in one process, over a process group, or over gRPC with mutual TLS."""

from .errors import ConnectionLost, TransportError
from .identity import SERVER_NAME, Identity, client_peer
from .link import Endpoint, InprocLink, Link, respond
from .packet import Answers, Packet, Verb, scalar
from .wire import MAX_MESSAGE, decode, encode

__all__ = (
    "MAX_MESSAGE",
    "SERVER_NAME",
    "Answers",
    "ConnectionLost",
    "Endpoint",
    "Identity",
    "InprocLink",
    "Link",
    "Packet",
    "TransportError",
    "Verb",
    "client_peer",
    "decode",
    "encode",
    "respond",
    "scalar",
)
