"""Split parties over lines that leave the process: gRPC in bf16, and a process group."""

from pathlib import Path

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

from qpriv.transport import Identity
from qpriv.transport.certificates import make_certificates
from qpriv.transport.distributed import DistributedConnection, serve_ranks
from qpriv.transport.grpc_connection import GrpcConnection, GrpcServer
from tests.tiny_models import HIDDEN_SIZE

from .parties import (
    batch_of,
    equal,
    fresh,
    hooks,
    remote_split_client,
    remote_split_server,
    weights_of,
)

ROUNDS = 2
CLIENTS = 2


def tokens(kind: str) -> int:
    """Return how many tokens cross a cut, one way, in the whole run of one client."""
    run = fresh(kind, dtype="bfloat16")
    batches = [batch_of(run, number) for number in range(ROUNDS)]
    decisions = [run.policy.decide(run.encode(batch), batch.samples) for batch in batches]
    shortened = map(run.model.sequences, batches, decisions)
    return sum(int(sequences.attention_mask.sum()) for sequences in shortened)


@pytest.mark.parametrize("kind", ["split", "u_shaped"])
def test_bf16_crosses_grpc_in_two_bytes_a_number_and_loses_nothing(
    kind: str, tmp_path: Path
) -> None:
    make_certificates(tmp_path, clients=1)
    remote_server = remote_split_server(kind, tmp_path / "server", ROUNDS, dtype="bfloat16")
    server = GrpcServer(remote_server, "localhost:0", Identity.read(tmp_path, "server"))
    server.start()
    try:
        address, identity = f"localhost:{server.port}", Identity.read(tmp_path, "client0")
        remote_client = remote_split_client(
            kind, tmp_path / "client0", lambda: GrpcConnection(address, identity), dtype="bfloat16"
        )
        remote_client.run()
    finally:
        server.stop(0)
    for name, weights in hooks(kind, 1, ROUNDS, "bfloat16").items():
        assert equal(weights_of(tmp_path / name), weights), name
    crossed = remote_client.crossed()
    assert crossed["activation/up"] == crossed["gradient/down"] == tokens(kind) * HIDDEN_SIZE * 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["split", "u_shaped"])
def test_parties_of_a_process_group_end_at_the_weights_of_one_process(
    kind: str, tmp_path: Path
) -> None:
    mp.spawn(_rank, (kind, tmp_path), nprocs=1 + CLIENTS)
    for name, weights in hooks(kind, CLIENTS, ROUNDS).items():
        assert equal(weights_of(tmp_path / name), weights), name


def _rank(rank: int, kind: str, folder: Path) -> None:
    # within a process group, transformers would write the random model on rank 0 alone
    fresh(kind, CLIENTS)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=1 + CLIENTS
    )
    if rank == 0:
        remote_server = remote_split_server(kind, folder / "server", ROUNDS, clients=CLIENTS)
        serve_ranks(remote_server)
        assert remote_server.finished.is_set()
    else:
        number = rank - 1
        own = folder / f"client{number}"
        remote_split_client(kind, own, DistributedConnection, number, clients=CLIENTS).run()
    dist.destroy_process_group()
