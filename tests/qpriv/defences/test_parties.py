"""Parties that can only write to each other defend a cut as the undivided model does."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

from qpriv.defences import Defence, GaussianNoise
from qpriv.paradigms.split_client import SplitClient
from qpriv.paradigms.split_server import BodyServer, Message, Server, SplitServer
from qpriv.split.layers import Segment, Tail
from tests.qpriv.defences.test_at_a_cut import DEFENCES, defended
from tests.qpriv.defences.toys import Narrow, Withdraw
from tests.qpriv.paradigms.runs import RECIPE, begin, by_base_name, same, train, trained_weights
from tests.qpriv.paradigms.test_split_server import Wire
from tests.tiny_models import random_samples

SEED = 5  # that of `begin`
STEPS = 3
MICRO = replace(RECIPE, dropout=0.0, micro_batch_size=3)


def parties(kind: str, defence: Defence | None, seed: int | None = SEED) -> tuple[SplitClient, Any]:
    paradigm = defended(kind, defence)
    run = begin(paradigm, MICRO)
    given: Any = {"guards": paradigm.guards, "seed": SEED}
    server: Server
    if kind == "split":
        server = SplitServer(Tail(run.model, 4), MICRO, STEPS, **given)
    else:
        server = BodyServer(Segment(run.model, *paradigm.cuts), MICRO, STEPS, **given)
    wire = Wire(server)
    own: Any = {"guards": paradigm.guards.alone(0), "seed": seed}
    client = SplitClient(
        run.model, paradigm.cuts, wire, run.policy, run.encode, MICRO, STEPS, **own
    )
    return client, wire


@pytest.mark.parametrize("name", DEFENCES)
@pytest.mark.parametrize("kind", ["split", "u_shaped"])
def test_they_learn_send_and_answer_as_one_process(kind: str, name: str) -> None:
    defence = DEFENCES[name]()
    hooks = train(defended(kind, defence), STEPS, MICRO)
    other = DEFENCES[name]()
    client, wire = parties(kind, other)
    batch = client.model.preprocessor(random_samples(4))
    losses = []
    for number in range(STEPS):
        torch.manual_seed(number)
        losses.append(client.step(batch))
    assert losses == hooks.losses
    weights = by_base_name(trained_weights(client.model))
    assert same(weights, by_base_name(hooks.weights))
    assert same(dict(other.state_dict()), dict(defence.state_dict()))
    sent: Counter[str] = Counter()
    for way, packets in (("up", wire.seen), ("down", wire.returned)):
        for packet in packets:
            for kept, tensor in packet.tensors.items():
                sent[f"{kept.split('/')[0]}/{way}"] += tensor.numel() * tensor.element_size()
    assert sent == hooks.paradigm.traffic.by_kind()
    client.model.eval()
    features = client.encode(batch)
    decision = client.policy.decide(features, batch.samples)
    with hooks.paradigm.answering(hooks.model, 0):
        expected = hooks.model.answer(batch, features, decision, max_new_tokens=5)
    assert client.answer(batch, 5) == expected
    if name == "withdraw":
        lengths = wire.seen[0].tensors["lengths"]
        assert lengths.tolist() == (batch.attention_mask.sum(dim=1) - 64)[:3].tolist()


def test_the_noise_of_a_client_is_its_own_and_outlives_it() -> None:
    """A seed that the server knows would let it subtract the noise."""
    clients = [parties("split", GaussianNoise(0.5), seed=None)[0] for _ in range(2)]
    batch = clients[0].model.preprocessor(random_samples(4))
    first = [client.turn(batch) for client in clients]
    assert clients[0].seed != clients[1].seed and first[0] != first[1]
    again, _ = parties("split", GaussianNoise(0.5), seed=None)
    start = again.state()
    again.load_state({**start, "seed": clients[0].seed})
    assert again.turn(batch) == first[0]


class Shouting:
    """A server that says its gradient were huge, or nothing at all."""

    def __init__(self, server: Any, said: float) -> None:
        self.server, self.said = server, said

    def __call__(self, packet: Message) -> Message:
        answer = self.server(packet)
        if packet.type == "step":
            return Message("step", {"scalar/norm": torch.tensor(self.said, dtype=torch.float64)})
        return answer


@pytest.mark.parametrize("said", [1e30, 0.0])
def test_no_number_of_the_servers_scales_the_clients_own_term(said: float) -> None:
    moved = []
    for weight in (0.0, 1e3):
        client, wire = parties("split", Narrow(weight=weight))
        client.server = Shouting(wire, said)
        steps: list[list[torch.Tensor]] = []
        client.optimizer.step = lambda: steps.append(
            [p.grad.clone() for p in client.trained if p.grad is not None]
        )  # type: ignore[assignment]
        client.turn(client.model.preprocessor(random_samples(4)))
        moved.append(torch.cat([gradient.flatten() for gradient in steps[0]]))
    answers, both = moved
    assert float(answers.norm()) <= MICRO.clip * 1.001
    assert float((both - answers).norm()) == pytest.approx(MICRO.clip, rel=1e-3)


def test_another_width_is_no_message_of_this_run() -> None:
    narrow, _ = parties("split", Narrow(16))
    _, plain = parties("split", Withdraw())
    narrow.server = plain
    with pytest.raises(Exception, match="same codec, bucket, defence and model"):
        narrow.turn(narrow.model.preprocessor(random_samples(4)))
