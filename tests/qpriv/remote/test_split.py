"""Split parties with lines between them: the weights of one process, whatever dies and when."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from qpriv.errors import CheckpointError, ConfigError
from qpriv.remote import RemoteSplitServer, Snapshots
from qpriv.transport import (
    ConnectionLost,
    InprocConnection,
    Message,
    TransportError,
    client_peer,
    decode,
    scalar,
)
from tests.held import held_by_another

from . import parties
from .parties import equal, hooks, line, remote_split_client, remote_split_server, weights_of

ROUNDS = 3


@pytest.mark.parametrize("kind", ["split", "u_shaped"])
def test_clients_in_turn_end_at_the_weights_of_one_process(kind: str, tmp_path: Path) -> None:
    remote_server = remote_split_server(kind, tmp_path / "server", ROUNDS, clients=2)
    remote_clients = [
        remote_split_client(
            kind, tmp_path / f"client{number}", line(remote_server, number), number, clients=2
        )
        for number in range(2)
    ]
    parties.together(remote_clients)
    assert remote_server.finished.is_set()
    expected = hooks(kind, 2, ROUNDS)
    for name, weights in expected.items():
        assert equal(weights_of(tmp_path / name), weights), name
    assert not equal(expected["client0"], expected["client1"])


class Cut(InprocConnection):
    """A line that dies at a given frame, before or after the server has heard it."""

    def __init__(self, remote_server: RemoteSplitServer, at: int, heard: bool) -> None:
        super().__init__(remote_server, "client0")
        self.left, self.heard = at, heard

    def exchange(self, frame: bytes) -> bytes:
        if self.left == 0:
            if self.heard:
                super().exchange(frame)
            raise ConnectionLost("cut")
        self.left -= 1
        return super().exchange(frame)


class Counting(InprocConnection):
    """Notes the type of every frame."""

    types: list[str]

    def exchange(self, frame: bytes) -> bytes:
        self.types.append(decode(frame).type)
        return super().exchange(frame)


Whole = tuple[list[Tensor], list[Tensor], list[str], Counter[str]]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Whole]:
    """Return what parties of a kind of split end at, and the frames it takes."""

    @cache
    def run(kind: str) -> Whole:
        folder = tmp_path_factory.mktemp("whole")
        remote_server = remote_split_server(kind, folder / "server", ROUNDS, dropout=0.2)
        connection = Counting(remote_server, "client0")
        connection.types = []
        remote_split_client(kind, folder / "client0", lambda: connection, dropout=0.2).run()
        return (
            weights_of(folder / "server"),
            weights_of(folder / "client0"),
            connection.types,
            connection.kinds,
        )

    return run


def die_and_come_back(kind: str, folder: Path, at: int, heard: bool, whole: Whole) -> None:
    """Let both parties die at a frame of the second round, and go on from their folders alone."""
    remote_server = remote_split_server(kind, folder / "server", ROUNDS, dropout=0.2)
    dying = remote_split_client(
        kind, folder / "client0", lambda: Cut(remote_server, at, heard), dropout=0.2
    )
    dying.patience = -1.0
    with pytest.raises(ConnectionLost, match="cut"):
        dying.run()
    again = remote_split_server(kind, folder / "server", ROUNDS, dropout=0.2)
    assert again.round >= 1  # the first round is finished, and stays so
    remote_split_client(kind, folder / "client0", line(again), dropout=0.2).run()
    assert equal(weights_of(folder / "server"), whole[0]), at
    assert equal(weights_of(folder / "client0"), whole[1]), at


@pytest.mark.parametrize("heard", [False, True])
def test_both_parties_may_die_over_the_promise(
    uninterrupted: Callable[[str], Whole], heard: bool, tmp_path: Path
) -> None:
    whole = uninterrupted("split")
    commits = [number for number, each in enumerate(whole[2]) if each == "commit"]
    die_and_come_back("split", tmp_path, commits[1], heard, whole)


@pytest.mark.slow
@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("kind", ["split", "u_shaped"])
def test_both_parties_may_die_at_any_message(
    uninterrupted: Callable[[str], Whole], kind: str, heard: bool, tmp_path: Path
) -> None:
    whole = uninterrupted(kind)
    begins = [number for number, each in enumerate(whole[2]) if each == "begin"]
    for at in range(begins[1], begins[2]):
        die_and_come_back(kind, tmp_path / str(at), at, heard, whole)


def test_a_server_that_stays_sees_its_client_come_back(
    uninterrupted: Callable[[str], Whole], tmp_path: Path
) -> None:
    server, client, _, kinds = uninterrupted("split")
    remote_server = remote_split_server("split", tmp_path / "server", ROUNDS, dropout=0.2)
    lines = iter(
        [
            Cut(remote_server, 3, True),
            Cut(remote_server, 4, True),
            InprocConnection(remote_server, "client0"),
        ]
    )
    remote_client = remote_split_client(
        "split", tmp_path / "client0", lambda: next(lines), dropout=0.2
    )
    remote_client.run()
    assert equal(weights_of(tmp_path / "server"), server)
    assert equal(weights_of(tmp_path / "client0"), client)
    assert remote_client.crossed()["activation/up"] > kinds["activation/up"]  # what was sent twice


def test_a_folder_that_has_not_been_there_is_refused(tmp_path: Path) -> None:
    remote_server = remote_split_server("split", tmp_path / "server", ROUNDS)
    remote_split_client("split", tmp_path / "client0", line(remote_server)).run()
    with pytest.raises(CheckpointError, match=r"no readable state of round 3, but of \[0\]"):
        remote_split_client("split", tmp_path / "elsewhere", line(remote_server)).run()


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    Snapshots(tmp_path, {"rank": "4", "rounds": "3"}).write(1, {"round": 1})
    assert Snapshots(tmp_path, {"rank": "4", "rounds": "3"}).read(1) == {"round": 1}
    with pytest.raises(CheckpointError, match="whose rounds is 3, not 6"):
        Snapshots(tmp_path, {"rank": "4", "rounds": "6"}).read(1)
    (tmp_path / "00000001.pt").write_bytes(b"torn")
    with pytest.raises(CheckpointError, match=r"no readable state of round 1, but of \[1\]"):
        Snapshots(tmp_path).read(1)


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"model": "another"}, "model is another, the server's is digest"),
        ({"rank": "8"}, "rank is 8, the server's is 4"),
        ({"cuts": "(4,)"}, r"cuts is \(4,\), the server's is \(3,\)"),
        ({"unheard": "of"}, "unheard is of, the server's is None"),
    ],
)
def test_who_does_not_agree_is_refused(terms: dict[str, str], reason: str, tmp_path: Path) -> None:
    remote_server = _shared_host()
    with pytest.raises(TransportError, match=reason):
        remote_split_client("split", tmp_path, line(remote_server), terms=terms).run()


def forward(**changes: Tensor | None) -> Message:
    tensors = {
        "activation/values": torch.ones(5, 64),
        "lengths": torch.tensor([2, 3]),
        "labels": torch.tensor([-100, 3, -100, 5, 6], dtype=torch.int32),
        "scalar/tokens": scalar(3),
    }
    given = {**tensors, **{name.replace("_", "/"): value for name, value in changes.items()}}
    return Message("forward", {name: value for name, value in given.items() if value is not None})


BROKEN = [
    (forward(activation_values=torch.ones(5, 63)), r"shape \[5, 63\], not torch.float32 of shape"),
    (forward(activation_values=torch.ones(4, 64)), r"shape \[4, 64\], not"),
    (forward(activation_values=torch.ones(5, 64).half()), "torch.float16 of shape"),
    (forward(activation_values=torch.full((5, 64), torch.nan)), "not finite"),
    (forward(activation_values=None), "activation/values is absent"),
    (forward(activation_scale=torch.ones(5, 1)), "activation/scale is torch.float32"),
    (forward(lengths=None), "does not tell the lengths"),
    (forward(lengths=torch.tensor([5, 0])), "lengths are 0 to 5"),
    (forward(lengths=torch.tensor([2**40])), "lengths are"),
    (forward(positions=torch.tensor([0, 1, 0, 1, 999])), "positions do not fit"),
    (forward(labels=torch.tensor([1, 2], dtype=torch.int32)), "2 labels do not fit 5 tokens"),
    (forward(labels=torch.full((5,), 10**6, dtype=torch.int32)), "labels do not fit"),
    (forward(labels=torch.full((5,), -100, dtype=torch.int32)), "labels do not fit"),
    (forward(scalar_tokens=scalar(0)), "has no answer token"),
    (forward(scalar_tokens=scalar(float("inf"))), "no usable tokens"),
    (Message("backward", {"gradient/values": torch.ones(5, 64)}), "send it labels"),
    (Message("step"), "gives no usable norm"),
    (Message("step", {"scalar/norm": scalar(-1)}), "gives no usable norm"),
    (Message("trained"), "does not trained"),
]  # fmt: skip


def test_what_makes_no_sense_is_refused_and_undone(tmp_path: Path) -> None:
    remote_server = remote_split_server("split", tmp_path / "server", ROUNDS)
    connection = InprocConnection(remote_server, "client0")
    for message, reason in BROKEN:
        connection(Message("hello", note=remote_server.terms))
        connection(Message("begin"))
        with pytest.raises(TransportError, match=reason):
            connection(message)
    connection(Message("begin"))
    connection(forward())
    with pytest.raises(TransportError, match="a turn ends with a step"):
        connection(Message("commit"))
    # and after all that, training goes as if nothing had been said
    remote_split_client("split", tmp_path / "client0", line(remote_server)).run()
    assert equal(weights_of(tmp_path / "server"), hooks("split", 1, ROUNDS)["server"])


def test_nobody_speaks_out_of_turn() -> None:
    remote_server = _shared_host()
    for peer, reason in (("client1", "there is no client1 in this run"), ("server", "there is no")):
        with pytest.raises(TransportError, match=reason):
            InprocConnection(remote_server, peer)(Message("hello", note=remote_server.terms))
    connection = InprocConnection(remote_server, client_peer(0))
    remote_server._greeted.clear()
    with pytest.raises(TransportError, match="has not said hello"):
        connection(Message("begin"))
    connection(Message("hello", note=remote_server.terms))
    assert connection(Message("begin", round=2)).type == "wait"
    with pytest.raises(TransportError, match="has no turn"):
        connection(forward())
    with pytest.raises(TransportError, match="when training is done"):
        connection(Message("generate"))


_hosts: list[RemoteSplitServer] = []


def _shared_host() -> RemoteSplitServer:
    """Return one server for tests that change nothing."""
    import tempfile

    if not _hosts:
        _hosts.append(remote_split_server("split", Path(tempfile.mkdtemp()), ROUNDS))
    return _hosts[0]


def test_states_are_written_by_one_process_and_read_by_any(tmp_path: Path) -> None:
    with held_by_another(tmp_path):
        states = Snapshots(tmp_path)
        assert states.numbers() == []
        with pytest.raises(ConfigError, match="is at work in this folder"):
            states.write(1, {"round": 1})
    states.write(1, {"round": 1})
    assert Snapshots(tmp_path).numbers() == [1]
