"""Split parties with lines between them: the weights of one process, whatever dies and when."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from qpriv.errors import CheckpointError, ConfigError
from qpriv.paradigms.remote import Snapshots, SplitHost
from qpriv.transport import (
    ConnectionLost,
    InprocLink,
    Packet,
    TransportError,
    client_peer,
    decode,
    scalar,
)
from tests.held import held_by_another

from . import parties
from .parties import equal, hooks, line, split_guest, split_host, weights_of

ROUNDS = 3


@pytest.mark.parametrize("kind", ["split", "u_shaped"])
def test_clients_in_turn_end_at_the_weights_of_one_process(kind: str, tmp_path: Path) -> None:
    host = split_host(kind, tmp_path / "server", ROUNDS, clients=2)
    guests = [
        split_guest(kind, tmp_path / f"client{number}", line(host, number), number, clients=2)
        for number in range(2)
    ]
    parties.together(guests)
    assert host.finished.is_set()
    expected = hooks(kind, 2, ROUNDS)
    for name, weights in expected.items():
        assert equal(weights_of(tmp_path / name), weights), name
    assert not equal(expected["client0"], expected["client1"])


class Cut(InprocLink):
    """A line that dies at a given frame, before or after the server has heard it."""

    def __init__(self, host: SplitHost, at: int, heard: bool) -> None:
        super().__init__(host, "client0")
        self.left, self.heard = at, heard

    def exchange(self, frame: bytes) -> bytes:
        if self.left == 0:
            if self.heard:
                super().exchange(frame)
            raise ConnectionLost("cut")
        self.left -= 1
        return super().exchange(frame)


class Counting(InprocLink):
    """Notes the verb of every frame."""

    verbs: list[str]

    def exchange(self, frame: bytes) -> bytes:
        self.verbs.append(decode(frame).verb)
        return super().exchange(frame)


Whole = tuple[list[Tensor], list[Tensor], list[str], Counter[str]]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Whole]:
    """Return what parties of a kind of split end at, and the frames it takes."""

    @cache
    def run(kind: str) -> Whole:
        folder = tmp_path_factory.mktemp("whole")
        host = split_host(kind, folder / "server", ROUNDS, dropout=0.2)
        link = Counting(host, "client0")
        link.verbs = []
        split_guest(kind, folder / "client0", lambda: link, dropout=0.2).run()
        return weights_of(folder / "server"), weights_of(folder / "client0"), link.verbs, link.kinds

    return run


def die_and_come_back(kind: str, folder: Path, at: int, heard: bool, whole: Whole) -> None:
    """Let both parties die at a frame of the second round, and go on from their folders alone."""
    host = split_host(kind, folder / "server", ROUNDS, dropout=0.2)
    dying = split_guest(kind, folder / "client0", lambda: Cut(host, at, heard), dropout=0.2)
    dying.patience = -1.0
    with pytest.raises(ConnectionLost, match="cut"):
        dying.run()
    again = split_host(kind, folder / "server", ROUNDS, dropout=0.2)
    assert again.round >= 1  # the first round is finished, and stays so
    split_guest(kind, folder / "client0", line(again), dropout=0.2).run()
    assert equal(weights_of(folder / "server"), whole[0]), at
    assert equal(weights_of(folder / "client0"), whole[1]), at


@pytest.mark.parametrize("heard", [False, True])
def test_both_parties_may_die_over_the_promise(
    uninterrupted: Callable[[str], Whole], heard: bool, tmp_path: Path
) -> None:
    whole = uninterrupted("split")
    commits = [number for number, verb in enumerate(whole[2]) if verb == "commit"]
    die_and_come_back("split", tmp_path, commits[1], heard, whole)


@pytest.mark.slow
@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("kind", ["split", "u_shaped"])
def test_both_parties_may_die_at_any_message(
    uninterrupted: Callable[[str], Whole], kind: str, heard: bool, tmp_path: Path
) -> None:
    whole = uninterrupted(kind)
    begins = [number for number, verb in enumerate(whole[2]) if verb == "begin"]
    for at in range(begins[1], begins[2]):
        die_and_come_back(kind, tmp_path / str(at), at, heard, whole)


def test_a_server_that_stays_sees_its_client_come_back(
    uninterrupted: Callable[[str], Whole], tmp_path: Path
) -> None:
    server, client, _, kinds = uninterrupted("split")
    host = split_host("split", tmp_path / "server", ROUNDS, dropout=0.2)
    lines = iter([Cut(host, 3, True), Cut(host, 4, True), InprocLink(host, "client0")])
    guest = split_guest("split", tmp_path / "client0", lambda: next(lines), dropout=0.2)
    guest.run()
    assert equal(weights_of(tmp_path / "server"), server)
    assert equal(weights_of(tmp_path / "client0"), client)
    assert guest.crossed()["activation/up"] > kinds["activation/up"]  # what was sent twice


def test_a_folder_that_has_not_been_there_is_refused(tmp_path: Path) -> None:
    host = split_host("split", tmp_path / "server", ROUNDS)
    split_guest("split", tmp_path / "client0", line(host)).run()
    with pytest.raises(CheckpointError, match=r"no readable state of round 3, but of \[0\]"):
        split_guest("split", tmp_path / "elsewhere", line(host)).run()


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
    host = _shared_host()
    with pytest.raises(TransportError, match=reason):
        split_guest("split", tmp_path, line(host), terms=terms).run()


def forward(**changes: Tensor | None) -> Packet:
    tensors = {
        "activation/values": torch.ones(5, 64),
        "lengths": torch.tensor([2, 3]),
        "labels": torch.tensor([-100, 3, -100, 5, 6], dtype=torch.int32),
        "scalar/tokens": scalar(3),
    }
    given = {**tensors, **{name.replace("_", "/"): value for name, value in changes.items()}}
    return Packet("forward", {name: value for name, value in given.items() if value is not None})


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
    (Packet("backward", {"gradient/values": torch.ones(5, 64)}), "send it labels"),
    (Packet("step"), "gives no usable norm"),
    (Packet("step", {"scalar/norm": scalar(-1)}), "gives no usable norm"),
    (Packet("trained"), "does not trained"),
]  # fmt: skip


def test_what_makes_no_sense_is_refused_and_undone(tmp_path: Path) -> None:
    host = split_host("split", tmp_path / "server", ROUNDS)
    link = InprocLink(host, "client0")
    for packet, reason in BROKEN:
        link(Packet("hello", note=host.terms))
        link(Packet("begin"))
        with pytest.raises(TransportError, match=reason):
            link(packet)
    link(Packet("begin"))
    link(forward())
    with pytest.raises(TransportError, match="a turn ends with a step"):
        link(Packet("commit"))
    # and after all that, training goes as if nothing had been said
    split_guest("split", tmp_path / "client0", line(host)).run()
    assert equal(weights_of(tmp_path / "server"), hooks("split", 1, ROUNDS)["server"])


def test_nobody_speaks_out_of_turn() -> None:
    host = _shared_host()
    for peer, reason in (("client1", "there is no client1 in this run"), ("server", "there is no")):
        with pytest.raises(TransportError, match=reason):
            InprocLink(host, peer)(Packet("hello", note=host.terms))
    link = InprocLink(host, client_peer(0))
    host._greeted.clear()
    with pytest.raises(TransportError, match="has not said hello"):
        link(Packet("begin"))
    link(Packet("hello", note=host.terms))
    assert link(Packet("begin", round=2)).verb == "wait"
    with pytest.raises(TransportError, match="has no turn"):
        link(forward())
    with pytest.raises(TransportError, match="when training is done"):
        link(Packet("generate"))


_hosts: list[SplitHost] = []


def _shared_host() -> SplitHost:
    """Return one host for tests that change nothing."""
    import tempfile

    if not _hosts:
        _hosts.append(split_host("split", Path(tempfile.mkdtemp()), ROUNDS))
    return _hosts[0]


def test_states_are_written_by_one_process_and_read_by_any(tmp_path: Path) -> None:
    with held_by_another(tmp_path):
        states = Snapshots(tmp_path)
        assert states.numbers() == []
        with pytest.raises(ConfigError, match="is at work in this folder"):
            states.write(1, {"round": 1})
    states.write(1, {"round": 1})
    assert Snapshots(tmp_path).numbers() == [1]
