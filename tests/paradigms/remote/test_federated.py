"""Federated parties with lines between them learn what one process learns."""

import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from qpriv.paradigms import Federated
from qpriv.paradigms.weights import named_weights
from qpriv.transport import ConnectionLost, InprocLink, Packet, TransportError, scalar
from tests.paradigms.runs import same

from . import parties
from .parties import SAMPLES, batch_of, federated_guest, federated_host, fresh, line

ROUNDS, STEPS, CLIENTS = 2, 4, 2


def in_one_process(**settings) -> dict[str, Tensor]:
    run = fresh("federated", CLIENTS)
    paradigm = Federated(num_clients=CLIENTS, local_steps=2, **settings)
    paradigm.share_out(SAMPLES, seed=5)
    optimizer = paradigm.optimizer(run.model, run.recipe)
    scheduler = run.recipe.scheduler(optimizer, STEPS)
    for number in range(STEPS):
        paradigm.step(run, batch_of(run, number), optimizer, scheduler)
    return named_weights(run.model)


@pytest.mark.parametrize("settings", [{}, {"average": "products", "participation": 0.5}])
def test_clients_and_server_end_at_the_weights_of_one_process(settings, tmp_path: Path) -> None:
    expected = in_one_process(**settings)
    host = federated_host(tmp_path, ROUNDS, STEPS, CLIENTS, **settings)
    guests = [federated_guest(line(host, n), n, CLIENTS, **settings) for n in range(CLIENTS)]
    parties.together(guests)
    assert host.finished.is_set() and same(host.adapter, expected)
    for guest in guests:  # everybody holds the last adapter
        assert same(named_weights(guest.client.run.model), expected)


def test_a_server_that_dies_within_a_round_loses_that_round_only(tmp_path: Path) -> None:
    host = federated_host(tmp_path, ROUNDS, STEPS, CLIENTS)

    class Dying(InprocLink):
        def exchange(self, frame: bytes) -> bytes:
            while host.round == 1 and self.peer != "client0" and not host._received:
                time.sleep(0.001)  # the other client must be the first whose adapter arrives
            if host.round == 1 and host._received:
                raise ConnectionLost("the server is gone, with what client0 has just sent")
            return super().exchange(frame)

    dying = [federated_guest(lambda n=n: Dying(host, f"client{n}"), n, CLIENTS) for n in range(2)]
    for guest in dying:
        guest.patience = -1.0
    with pytest.raises(ConnectionLost):
        parties.together(dying)
    again = federated_host(tmp_path, ROUNDS, STEPS, CLIENTS)
    assert again.round == 1
    parties.together([federated_guest(line(again, n), n, CLIENTS) for n in range(CLIENTS)])
    assert same(again.adapter, in_one_process())


def test_adapters_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    host = federated_host(tmp_path, ROUNDS, STEPS, CLIENTS)
    link = InprocLink(host, "client0")
    link(Packet("hello", note=host.terms))
    given = {**link(Packet("begin")).tensors, "scalar/samples": scalar(3)}
    name = next(iter(given))
    for change, reason in (
        ({name: given[name][:-1]}, "of shape"),
        ({name: given[name].half()}, "torch.float16"),
        ({name: given[name] * torch.nan}, "not finite"),
        ({"adapter/another": given[name].clone()}, "differs by another"),
        ({"scalar/samples": scalar(-1)}, "trained on -1"),
        ({"scalar/samples": scalar(0.5)}, "trained on 0.5"),
    ):
        with pytest.raises(TransportError, match=reason):
            link(Packet("trained", {**given, **change}))
    with pytest.raises(TransportError, match="nothing of client0 is awaited for round 1"):
        link(Packet("trained", given, round=1))
    assert link(Packet("trained", given)).verb == "trained"
    assert link(Packet("begin")).verb == "wait"
    with pytest.raises(TransportError, match="does not forward"):
        link(Packet("forward"))
