"""Federated parties with lines between them learn what one process learns."""

import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from qpriv.paradigms import Federated
from qpriv.paradigms.weights import named_weights
from qpriv.transport import ConnectionLost, InprocConnection, Message, TransportError, scalar
from tests.qpriv.paradigms.runs import same

from . import parties
from .parties import (
    SAMPLES,
    batch_of,
    fresh,
    line,
    remote_federated_client,
    remote_federated_server,
)

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
    remote_server = remote_federated_server(tmp_path, ROUNDS, STEPS, CLIENTS, **settings)
    remote_clients = [
        remote_federated_client(line(remote_server, n), n, CLIENTS, **settings)
        for n in range(CLIENTS)
    ]
    parties.together(remote_clients)
    assert remote_server.finished.is_set() and same(remote_server.adapter, expected)
    for remote_client in remote_clients:  # everybody holds the last adapter
        assert same(named_weights(remote_client.client.run.model), expected)


def test_a_server_that_dies_within_a_round_loses_that_round_only(tmp_path: Path) -> None:
    remote_server = remote_federated_server(tmp_path, ROUNDS, STEPS, CLIENTS)

    class Dying(InprocConnection):
        def exchange(self, frame: bytes) -> bytes:
            while (
                remote_server.round == 1 and self.peer != "client0" and not remote_server._received
            ):
                time.sleep(0.001)  # the other client must be the first whose adapter arrives
            if remote_server.round == 1 and remote_server._received:
                raise ConnectionLost("the server is gone, with what client0 has just sent")
            return super().exchange(frame)

    dying = [
        remote_federated_client(lambda n=n: Dying(remote_server, f"client{n}"), n, CLIENTS)
        for n in range(2)
    ]
    for remote_client in dying:
        remote_client.patience = -1.0
    with pytest.raises(ConnectionLost):
        parties.together(dying)
    again = remote_federated_server(tmp_path, ROUNDS, STEPS, CLIENTS)
    assert again.round == 1
    parties.together([remote_federated_client(line(again, n), n, CLIENTS) for n in range(CLIENTS)])
    assert same(again.adapter, in_one_process())


def test_adapters_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    remote_server = remote_federated_server(tmp_path, ROUNDS, STEPS, CLIENTS)
    connection = InprocConnection(remote_server, "client0")
    connection(Message("hello", note=remote_server.terms))
    given = {**connection(Message("begin")).tensors, "scalar/samples": scalar(3)}
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
            connection(Message("trained", {**given, **change}))
    with pytest.raises(TransportError, match="nothing of client0 is awaited for round 1"):
        connection(Message("trained", given, round=1))
    assert connection(Message("trained", given)).type == "trained"
    assert connection(Message("begin")).type == "wait"
    with pytest.raises(TransportError, match="does not forward"):
        connection(Message("forward"))
