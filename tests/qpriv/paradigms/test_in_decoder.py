"""Policies inside the decoder, under every way to divide it: they learn and answer as one trainer."""

import pytest
import torch

from qpriv.errors import ConfigError
from qpriv.models.decoder.stages import Stage
from qpriv.paradigms import Centralized, Federated, Paradigm, SplitLearning, UShapedSplit
from qpriv.paradigms.split_client import SplitClient
from qpriv.paradigms.split_server import BodyServer, Message, Server, SplitServer
from qpriv.split import Direction, Kind, make_codec
from qpriv.split.layers import Segment, Tail
from tests.qpriv.paradigms.runs import (
    BATCH,
    RECIPE,
    begin,
    by_base_name,
    same,
    train,
    trained_weights,
)
from tests.tiny_models import HIDDEN_SIZE, random_samples
from tests.toy_policies import LastTokenAttention

STEPS = 3
STAGE = Stage(1)
CUTS = [(3,), (2, 6)]


def policy(**settings: object) -> LastTokenAttention:
    return LastTokenAttention(**{"stages": (STAGE,), **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "paradigm",
    [SplitLearning(cut=3), SplitLearning(cut=1), UShapedSplit((2, 6))],
    ids=["split-3", "split-1", "u-shaped"],
)
@pytest.mark.parametrize("settings", [{}, {"merge": 2}, {"positions": "original"}], ids=str)
def test_a_split_learns_what_one_trainer_does(paradigm: Paradigm, settings: dict) -> None:
    whole = train(Centralized(), STEPS, policy=policy(**settings))
    split = train(paradigm, STEPS, policy=policy(**settings))
    assert split.losses == whole.losses and split.losses[-1] < split.losses[0]
    assert all(map(same, whole.gradients, split.gradients))
    assert same(by_base_name(whole.weights), by_base_name(split.weights))


@pytest.mark.parametrize(("cut", "behind"), [(1, False), (2, True), (5, True)])
def test_what_a_split_counts_is_what_crosses_at_its_cut(cut: int, behind: bool) -> None:
    """Activations, gradients, labels and kept tokens; at cut 1 the server's layer decides."""
    split = train(SplitLearning(cut=cut), 1, policy=policy())
    model, batch = split.model, split.model.preprocessor(random_samples(BATCH))
    features = model.encode(batch)
    inputs = model.prepare(batch, features, policy().decide(features, batch.samples))
    counts = inputs.visual_counts(cut)
    assert (int(counts.max()) < 64) == behind
    tokens = int(counts.sum() + (batch.attention_mask.sum(dim=1) - 64).sum())
    (report,) = split.reports
    assert report is not None and report.kept == int(counts.sum())
    traffic = split.paradigm.traffic
    for kind, way in ((Kind.ACTIVATION, Direction.UP), (Kind.GRADIENT, Direction.DOWN)):
        assert traffic.num_bytes(kind=kind, direction=way) == tokens * HIDDEN_SIZE * 4
    assert traffic.num_bytes(kind=Kind.LABELS) == tokens * 4


def test_a_federated_client_learns_under_it() -> None:
    trained = train(Federated(num_clients=1, local_steps=1), STEPS, policy=policy())
    assert trained.losses[-1] < trained.losses[0]


class Wire:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.seen: list[Message] = []

    def __call__(self, message: Message) -> Message:
        self.seen.append(message)
        return self.server(message)


def parties(cuts: tuple[int, ...], own: LastTokenAttention) -> tuple[SplitClient, Wire]:
    paradigm = SplitLearning(cuts[0]) if len(cuts) == 1 else UShapedSplit(cuts)  # type: ignore[arg-type]
    run = begin(paradigm, policy=own)
    server: Server
    if len(cuts) == 1:
        server = SplitServer(Tail(run.model, cuts[0]), RECIPE, STEPS)
    else:
        server = BodyServer(Segment(run.model, *cuts), RECIPE, STEPS)
    wire = Wire(server)
    return SplitClient(run.model, cuts, wire, own, run.encode, RECIPE, STEPS), wire


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("settings", [{}, {"merge": 2}, {"positions": "original"}], ids=str)
def test_parties_learn_and_answer_as_the_undivided_model(cuts: tuple, settings: dict) -> None:
    whole = train(Centralized(), STEPS, policy=policy(**settings))
    client, wire = parties(cuts, policy(**settings))
    batch = client.model.preprocessor(random_samples(BATCH))
    losses = []
    for number in range(STEPS):
        torch.manual_seed(number)
        losses.append(client.step(batch))
    assert losses == whole.losses
    assert same(by_base_name(trained_weights(client.model)), by_base_name(whole.weights))
    client.model.eval()
    features = client.encode(batch)
    inputs = client.model.prepare(batch, features, client.policy.decide(features, batch.samples))
    crossing = inputs.visual_counts(cuts[0])
    text = batch.attention_mask.sum(dim=1) - 64
    assert torch.equal(wire.seen[0].tensors["lengths"].cpu(), crossing + text)
    assert ("positions" in wire.seen[0].tensors) == ("positions" in settings)
    assert client.answer(batch, 8) == client.model.answer(inputs, max_new_tokens=8)
    assert len(set(client.answer(batch, 8))) > 1


@pytest.mark.parametrize("cuts", [(1,), (1, 6)])
def test_a_server_of_layers_prunes_nothing(cuts: tuple) -> None:
    with pytest.raises(ConfigError, match="exit of layer 1, behind the cut 1"):
        parties(cuts, policy())


def test_sides_tell_who_decides() -> None:
    three = LastTokenAttention((Stage(1), Stage(4, "entry"), Stage(6)))
    split, u_shaped = three.side((4,)), three.side((4, 6))
    assert split.client == (Stage(1),) and split.server == (Stage(4, "entry"), Stage(6))
    assert (u_shaped.server, u_shaped.tail) == ((Stage(4, "entry"),), (Stage(6),))
    assert split.tail == ()


@pytest.mark.parametrize(
    ("settings", "lossy", "message"),
    [
        ({}, False, "by the base model, of which nothing crosses, but the exit of layer 4"),
        ({"adapters": True}, True, "as they were before the codec"),
        ({"adapters": True, "restarts": True}, False, "starts again before the first layer"),
    ],
)
def test_what_a_server_could_not_decide_is_refused(settings, lossy, message) -> None:
    own = LastTokenAttention((Stage(1), Stage(4)), **settings)
    own.check_split((5,), lossy=lossy)
    with pytest.raises(ConfigError, match=message):
        own.check_split((4,), lossy=lossy)
    LastTokenAttention((Stage(1), Stage(4)), adapters=True).check_split((4,))


def test_a_client_decides_before_the_codec() -> None:
    assert make_codec("int8").keeps(torch.float32) is False
    paradigm = SplitLearning(cut=3, codec="int8")
    trained = train(paradigm, 1, policy=policy())
    assert trained.paradigm.traffic.codec_error()["activation"] > 0
