"""Transport of messages: in one process, over a process group, or over gRPC with mutual TLS."""

from .connection import Connection, Endpoint, InprocConnection, respond
from .errors import ConnectionLost, TransportError
from .identity import SERVER_NAME, Identity, client_peer
from .message import Answers, Message, MessageType, scalar
from .wire import MAX_MESSAGE, decode, encode

__all__ = (
    "MAX_MESSAGE",
    "SERVER_NAME",
    "Answers",
    "Connection",
    "ConnectionLost",
    "Endpoint",
    "Identity",
    "InprocConnection",
    "Message",
    "MessageType",
    "TransportError",
    "client_peer",
    "decode",
    "encode",
    "respond",
    "scalar",
)
