"""The same bytes over every line; strangers and nonsense are turned away, and the server lives."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from qpriv.errors import ConfigError
from qpriv.transport import (
    Connection,
    ConnectionLost,
    Identity,
    InprocConnection,
    Message,
    TransportError,
    client_peer,
    encode,
    scalar,
)
from qpriv.transport.certificates import make_certificates
from qpriv.transport.distributed import DistributedConnection, serve_ranks
from qpriv.transport.grpc_connection import GrpcConnection, GrpcServer

LIMIT = 100_000
ROWS = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))


class Doubling:
    """Sends activations back twice as large, and says whom it heard."""

    def answer(self, peer: str, message: Message) -> Message:
        if message.type == "commit":
            raise ZeroDivisionError("a mistake of the server's own")
        if message.type != "forward":
            raise TransportError(f"no {message.type} here", remedy="send forward")
        rows = message.tensors["activation/values"]
        return Message("forward", {"activation/values": rows * 2}, note={"peer": peer})


@pytest.fixture(scope="module")
def server(certificates: Path) -> Iterator[GrpcServer]:
    identity = Identity.read(certificates, "server")
    running = GrpcServer(Doubling(), "localhost:0", identity, clients=2, max_message=LIMIT)
    running.start()
    yield running
    running.stop(0)


def connection(
    server: GrpcServer, certificates: Path, client: int = 0, limit: int = LIMIT
) -> GrpcConnection:
    identity = Identity.read(certificates, client_peer(client))
    return GrpcConnection(f"localhost:{server.port}", identity, limit)


def check(line: Connection, peer: str) -> None:
    answer = line(Message("forward", {"activation/values": ROWS}))
    assert torch.equal(answer.tensors["activation/values"], ROWS * 2)
    assert answer.note["peer"] == peer
    assert line.kinds == {"activation/up": 160, "activation/down": 160}
    assert line.frames["up"] == len(encode(Message("forward", {"activation/values": ROWS})))
    with pytest.raises(TransportError, match=r"no backward here: send forward"):
        line(Message("backward"))
    with pytest.raises(TransportError, match="the server failed to answer"):
        line(Message("commit"))
    assert line(Message("forward", {"activation/values": ROWS})).type == "forward"


def test_in_one_process() -> None:
    check(InprocConnection(Doubling(), "client1", LIMIT), "client1")


def test_over_grpc_the_peer_is_whom_its_certificate_names(
    server: GrpcServer, certificates: Path
) -> None:
    for client in (1, 0):
        with connection(server, certificates, client) as line:
            check(line, client_peer(client))


def test_strangers_are_turned_away(server: GrpcServer, certificates: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path, clients=1)
    foreign = Identity.read(tmp_path, "client0")
    ours = Identity.read(certificates, "client0")
    half = Identity(ours.authority, foreign.certificate, foreign.key)
    for stranger in (foreign, half):  # who trusts another server; whom the server does not trust
        with (
            GrpcConnection(f"localhost:{server.port}", stranger, LIMIT) as line,
            pytest.raises(ConnectionLost, match="certificates of one authority"),
        ):
            line(Message("forward", {"activation/values": ROWS}))
    # no certificate at all
    bare = grpc.secure_channel(
        f"localhost:{server.port}", grpc.ssl_channel_credentials(ours.authority)
    )
    with bare, pytest.raises(grpc.RpcError):
        next(bare.stream_stream("/qpriv.Parties/Exchange")(iter([encode(Message("forward"))])))
    with connection(server, certificates) as line:
        assert line(Message("forward", {"activation/values": ROWS})).type == "forward"


def test_nonsense_and_floods_are_refused_and_the_server_lives(
    server: GrpcServer, certificates: Path
) -> None:
    with connection(server, certificates) as line:
        assert b"malformed" in line.exchange(b"\x80\x04 a pickle, perhaps")
        assert line(Message("forward", {"activation/values": ROWS})).type == "forward"
    flood = Message("forward", {"activation/values": torch.zeros(LIMIT, 1)})
    with (
        connection(server, certificates) as line,
        pytest.raises(TransportError, match="are allowed"),
    ):
        line(flood)  # the client's own limit
    with connection(server, certificates, limit=10 * LIMIT) as line:  # a client without one
        with pytest.raises(TransportError, match="refused a message by its size"):
            line(flood)
    with connection(server, certificates) as line:
        assert line(Message("forward", {"activation/values": ROWS})).type == "forward"


def test_a_missing_certificate_and_a_busy_port_are_told(
    server: GrpcServer, certificates: Path
) -> None:
    with pytest.raises(ConfigError, match=r"there is no .*client7\.pem"):
        Identity.read(certificates, "client7")
    with pytest.raises(ConfigError, match="cannot listen on"):
        GrpcServer(Doubling(), f"localhost:{server.port}", Identity.read(certificates, "server"))


@pytest.mark.slow
def test_over_a_process_group(tmp_path: Path) -> None:
    mp.spawn(_rank, (tmp_path / "store",), nprocs=3)


def _rank(rank: int, store: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=3)
    if rank == 0:
        serve_ranks(Doubling(), LIMIT)
    else:
        with DistributedConnection(LIMIT) as line:
            check(line, client_peer(rank - 1))
            assert line(Message("forward", {"activation/values": ROWS}, note={"n": str(scalar(1))}))
    dist.destroy_process_group()
