"""Federated learning over Flower learns what one process learns; without Flower, it says so."""

import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec

import pytest

from qpriv.errors import ConfigError
from qpriv.transport import TransportError
from tests.qpriv.paradigms.runs import same

from .parties import SEED, fresh, local_client, terms_of
from .test_federated import CLIENTS, ROUNDS, STEPS, in_one_process

needs_flower = pytest.mark.skipif(find_spec("flwr") is None, reason="needs qpriv[flower]: flwr")


NODES = {11: 1, 7: 0}
"""Clients by node: a node's number tells nothing of the client's."""


def grid_of(answer: Callable):
    """Return a Flower grid of nodes in this process, which answer one after another."""
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    class Here(Grid):
        def get_node_ids(self) -> Iterable[int]:
            return list(NODES)

        def send_and_receive(self, messages, *, timeout=None):
            return [answer(message) for message in messages]

        set_run = run = create_message = push_messages = pull_messages = None

    Here.__abstractmethods__ = frozenset()
    return Here()


def run(change: Callable = lambda reply: reply, **settings):
    """Return the adapter that two clients and a server come to."""
    from flwr.app import ArrayRecord

    from qpriv.paradigms.weights import named_weights
    from qpriv.remote.flower import AdapterMean, run_config, train

    clients = {node: local_client(own, CLIENTS, **settings) for node, own in NODES.items()}
    server = fresh("federated", CLIENTS)
    paradigm = clients[7][0].paradigm
    config = run_config(STEPS, terms_of("digest", paradigm, server.recipe, SEED))
    grid = grid_of(lambda message: change(train(message, *clients[message.metadata.dst_node_id])))
    start = ArrayRecord(named_weights(server.model))
    result = AdapterMean(paradigm).start(grid, start, num_rounds=ROUNDS, train_config=config)
    return dict(result.arrays.to_torch_state_dict())


@needs_flower
@pytest.mark.parametrize("average", ["factors", "products"])
def test_clients_over_flower_end_at_the_weights_of_one_process(average: str) -> None:
    assert same(run(average=average), in_one_process(average=average))


@needs_flower
def test_a_client_that_fails_or_sends_nonsense_ends_the_run() -> None:
    from flwr.app import ArrayRecord, Error, Message

    def failed(reply):
        return Message(Error(code=0, reason="out of memory"), reply_to=reply)

    def cut_short(reply):
        adapter = reply.content.array_records["arrays"]
        adapter.pop(next(iter(adapter)))
        return reply

    def another(reply):
        reply.content.metric_records["metrics"]["client"] = 0
        return reply

    def broken(reply):
        state = reply.content.array_records["arrays"].to_torch_state_dict()
        reply.content["arrays"] = ArrayRecord({n: v * float("nan") for n, v in state.items()})
        return reply

    for change, reason in (
        (failed, "a client failed: out of memory"),
        (cut_short, "which differs by"),
        (another, r"answers of the clients \[0, 0\], where 2 were asked"),
        (broken, "not finite"),
    ):
        with pytest.raises(TransportError, match=reason):
            run(change)


@needs_flower
def test_a_client_of_another_run_refuses_to_train() -> None:
    from flwr.app import ArrayRecord, Message, RecordDict

    from qpriv.remote.flower import run_config, train

    client, terms = local_client(0, CLIENTS)
    config = run_config(STEPS, {**terms, "model": "another"})
    grid_of(train)
    message = Message(RecordDict({"arrays": ArrayRecord(), "config": config}), 7, "train")
    with pytest.raises(TransportError, match="model is digest, the server's is another"):
        train(message, client, terms)


def test_without_flower_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "flwr"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.delitem(sys.modules, "qpriv.remote.flower", raising=False)
    with pytest.raises(ConfigError, match=r"flwr is not installed: pip install 'qpriv\[flower\]'"):
        import qpriv.remote.flower  # noqa: F401
