"""The apps that Flower starts end at the weights of ``qpriv fit``."""

from importlib.util import find_spec

import pytest

from tests.qpriv.remote.test_flower import NODES, grid_of

from .test_parties import adapters, fit, same, settings

pytestmark = pytest.mark.skipif(find_spec("flwr") is None, reason="needs qpriv[flower]: flwr")


def context(node=0, run=None, **own):
    from flwr.app import Context, RecordDict

    return Context(1, node, own, RecordDict(), run)


def federated(*more):
    given = ("--model.paradigm=Federated", "--model.paradigm.num_clients=2")
    return settings(*given, "--model.paradigm.local_steps=2", *more)


def test_server_and_clients_end_at_the_weights_of_the_fit(tmp_path, monkeypatch):
    from cli.flower import client, server

    monkeypatch.chdir(tmp_path)
    typed = federated("--model.dropout=0.1")
    data = next(word for word in typed if word.startswith("--data="))
    run = {
        "settings": " ".join(word for word in typed if word != data),
        "server": f"--rounds 4 --steps 6 --out {tmp_path / 'server'}",
        "client": f"{data} --shard true",
    }
    grid = grid_of(
        lambda message: client(
            message,
            context(message.metadata.dst_node_id, run, client=NODES[message.metadata.dst_node_id]),
        )
    )
    server(grid, context(run=run))
    expected = fit(tmp_path / "fit", typed)["."]
    assert same(adapters(tmp_path / "server/adapter")["."], expected)


def test_another_paradigm_has_no_place_in_flower(tmp_path, monkeypatch):
    from cli.flower import server
    from qpriv.errors import ConfigError

    monkeypatch.chdir(tmp_path)
    typed = [word for word in settings("--model.paradigm=SplitLearning") if "--data" not in word]
    run = {"settings": " ".join(typed), "server": "--rounds 1"}
    with pytest.raises(ConfigError, match="Flower has no place for SplitLearning"):
        server(grid_of(lambda message: message), context(run=run))
