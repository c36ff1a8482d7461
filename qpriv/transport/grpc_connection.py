"""gRPC streams with mutual TLS: the line between organisations. Needs ``qpriv[grpc]``.

One stream a client, one frame each way at a time. Either end proves its name by a certificate of
the authority that all trust; who has none does not get as far as a message.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import grpc

from qpriv.errors import ConfigError

from .connection import Connection, Endpoint, respond
from .errors import ConnectionLost, TransportError
from .identity import Identity
from .wire import MAX_MESSAGE

_SERVICE, _METHOD = "qpriv.Parties", "Exchange"
_REASON = 140
"""Characters of the library's own account of a failure that are passed on."""


def _options(max_message: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", max_message),
        ("grpc.max_send_message_length", max_message),
        # a party whose machine has vanished without a word is noticed
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
    ]


class GrpcServer:
    """Lets clients with a certificate talk to an endpoint.

    Args:
        endpoint: Who answers.
        address: ``host:port`` to listen on; port 0 takes a free one.
        identity: The server's certificate and the authority of its clients.
        clients: Number of clients, which bounds the streams.
        max_message: Largest frame in bytes, either way.

    Raises:
        ConfigError: If the address cannot be listened on.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        address: str,
        identity: Identity,
        clients: int = 1,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        self.endpoint, self.max_message = endpoint, max_message
        # a restarted client may come before the stream of its last life is known to be dead
        streams = 2 * clients + 2
        self._server = grpc.server(
            ThreadPoolExecutor(streams),
            options=[*_options(max_message), ("grpc.so_reuseport", 0)],
            maximum_concurrent_rpcs=streams,
        )
        handler = grpc.stream_stream_rpc_method_handler(self._exchange)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),)
        )
        credentials = grpc.ssl_server_credentials(
            [(identity.key, identity.certificate)], identity.authority, require_client_auth=True
        )
        try:
            self.port: int = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ConfigError(
                f"cannot listen on {address}", where="--listen", remedy="choose another port"
            ) from error

    def start(self) -> None:
        """Begin to listen."""
        self._server.start()

    def stop(self, grace: float = 5.0) -> None:
        """Stop listening; answers under way have some seconds to leave."""
        self._server.stop(grace).wait()

    def _exchange(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        (name,) = context.auth_context()["x509_common_name"]
        for frame in frames:
            yield respond(self.endpoint, name.decode(), frame, self.max_message)


class GrpcConnection(Connection):
    """A client's stream to a `GrpcServer`.

    Args:
        address: ``host:port`` of the server.
        identity: The client's certificate and the authority of the server.
        max_message: Largest frame in bytes, either way.
    """

    def __init__(self, address: str, identity: Identity, max_message: int = MAX_MESSAGE) -> None:
        super().__init__(max_message)
        self.address = address
        credentials = grpc.ssl_channel_credentials(
            identity.authority, identity.key, identity.certificate
        )
        self._channel = grpc.secure_channel(address, credentials, options=_options(max_message))
        self._frames: SimpleQueue[bytes | None] = SimpleQueue()
        call = self._channel.stream_stream(f"/{_SERVICE}/{_METHOD}")
        self._answers: Any = call(iter(self._frames.get, None))

    def exchange(self, frame: bytes) -> bytes:
        """Return the answer to a frame.

        Raises:
            TransportError: If the server finds it too large.
            ConnectionLost: If the server is gone, or does not let this client in.
        """
        self._frames.put(frame)
        try:
            answer: bytes = next(self._answers)
        except StopIteration as error:
            raise ConnectionLost("the server hung up", where=self.address) from error
        except grpc.RpcError as error:
            raise self._explained(error) from error
        return answer

    def close(self) -> None:
        """Hang up."""
        self._frames.put(None)
        self._channel.close()

    def _explained(self, error: Any) -> TransportError:  # noqa: ANN401 - grpc has no types
        details = " ".join(str(error.details()).split())
        if "larger than max" in details:
            return TransportError(
                f"the server refused a message by its size: {details}",
                where="--max_message",
                remedy="send smaller micro-batches, or allow more at both ends",
            )
        # what to do must fit on the line as well
        reason = details.rpartition("last error: ")[2][:_REASON]
        return ConnectionLost(
            f"no answer from the server: {reason}",
            where=self.address,
            remedy="is it running, and are both certificates of one authority?",
        )
