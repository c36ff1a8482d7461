"""Parties that can only write to each other learn and answer as the undivided model does."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from qpriv.models.batch import VQABatch
from qpriv.paradigms import Centralized, SplitLearning, UShapedSplit
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.paradigms.split_client import SplitClient
from qpriv.paradigms.split_server import BodyServer, Message, Server, SplitServer
from qpriv.split import make_codec
from qpriv.split.layers import Segment, Tail
from tests.qpriv.paradigms.runs import (
    RECIPE,
    Trained,
    begin,
    by_base_name,
    same,
    train,
    trained_weights,
)
from tests.tiny_models import random_samples

STEPS = 20
CUTS = [(3,), (2, 6)]


class Wire:
    """Hands messages to a server and keeps a copy of everything that crosses."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.seen: list[Message] = []
        self.returned: list[Message] = []

    def __call__(self, message: Message) -> Message:
        self.seen.append(message)
        answer = self.server(message)
        self.returned.append(answer)
        return answer

    def kinds(self) -> set[str]:
        return {name for message in (*self.seen, *self.returned) for name in message.tensors}


def parties(
    cuts: tuple[int, ...],
    codec: str | None = None,
    bucket: int = 1,
    recipe: LoraRecipe = RECIPE,
) -> tuple[SplitClient, Wire]:
    run = begin(SplitLearning(cuts[0]) if len(cuts) == 1 else UShapedSplit(cuts), recipe)  # type: ignore[arg-type]
    own = None if codec is None else make_codec(codec)  # type: ignore[arg-type]
    server: Server
    if len(cuts) == 1:
        server = SplitServer(Tail(run.model, cuts[0]), recipe, STEPS, own, bucket)
    else:
        server = BodyServer(Segment(run.model, *cuts), recipe, STEPS, own, bucket)
    wire = Wire(server)
    client = SplitClient(run.model, cuts, wire, run.policy, run.encode, recipe, STEPS, own, bucket)
    return client, wire


@pytest.fixture(scope="module")
def centralized() -> Trained:
    return train(Centralized(), STEPS)


@pytest.mark.parametrize("cuts", [pytest.param(CUTS[0], marks=pytest.mark.slow), CUTS[1]])
def test_twenty_steps_of_two_parties_are_those_of_one_trainer_bit_for_bit(
    centralized: Trained, cuts: tuple[int, ...]
) -> None:
    client, _ = parties(cuts)
    batch = client.model.preprocessor(random_samples(4))
    losses = []
    for number in range(STEPS):
        torch.manual_seed(number)
        losses.append(client.step(batch))
    assert losses == centralized.losses
    weights = by_base_name(trained_weights(client.model))
    assert same(weights, by_base_name(centralized.weights))
    # and what they learned they answer token by token, each with a cache of its own
    client.model.eval()
    features = client.encode(batch)
    decision = client.policy.decide(features, batch.samples)
    assert client.answer(batch) == client.model.answer(batch, features, decision)
    assert len(set(client.answer(batch))) > 1


def stock_tokens(client: SplitClient, batch: VQABatch, longest: int) -> Tensor:
    """Return what the undivided model's own `generate` makes of a batch, ``[B, T]``."""
    model, features = client.model, client.encode(batch)
    decision = client.policy.decide(features, batch.samples)
    inputs = model.prepare(batch, features, decision)
    prompt = inputs.prompt.start
    ids: Tensor = model.llava.generate(
        input_ids=prompt.input_ids,
        attention_mask=prompt.attention_mask,
        mm_encoder_outputs=inputs.image_outputs,
        max_new_tokens=longest,
        do_sample=False,
        eos_token_id=model.preprocessor.tokenizer.eos_token_id,
        pad_token_id=model.preprocessor.pad_token,
    )
    return ids[:, prompt.input_ids.shape[1] :]


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("cuts", CUTS)
def test_untrained_parties_generate_long_answers_token_for_token(
    cuts: tuple[int, ...], implementation: str
) -> None:
    client, wire = parties(cuts)
    client.model.eval()
    client.model.stock.set_attn_implementation(implementation)
    batch = client.model.preprocessor(random_samples(4))
    expected = stock_tokens(client, batch, 8)
    assert torch.equal(client.generate(batch, max_new_tokens=8), expected)
    assert expected.shape[1] > 2
    lengths = [len(message.tensors["activation/values"]) for message in wire.seen]
    assert lengths[0] > 4 and lengths[1:] == [4] * (len(lengths) - 1) and len(lengths) > 2


MICRO = replace(
    RECIPE, dropout=0.0, micro_batch_size=3, warmup=0.0, schedule="constant", learning_rate=1e-3
)


@pytest.fixture(scope="module")
def in_micro_batches() -> Trained:
    return train(Centralized(), 1, MICRO)


def test_micro_batches_count_every_answer_token_of_the_batch_alike(
    in_micro_batches: Trained,
) -> None:
    """The loss is normalised by the batch's answer tokens, not by those of a micro-batch."""
    whole = train(Centralized(), 1, replace(MICRO, micro_batch_size=None))
    for name, gradient in in_micro_batches.gradients[0].items():
        torch.testing.assert_close(gradient, whole.gradients[0][name], rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("cuts", CUTS)
def test_parties_take_micro_batches_as_one_trainer_does_bit_for_bit(
    in_micro_batches: Trained, cuts: tuple[int, ...]
) -> None:
    client, _ = parties(cuts, recipe=MICRO)
    loss = client.step(client.model.preprocessor(random_samples(4)))
    assert [loss] == in_micro_batches.losses
    expected = by_base_name(in_micro_batches.weights)
    assert same(by_base_name(trained_weights(client.model)), expected)


def test_a_body_server_sees_activations_and_gradients_and_nothing_else() -> None:
    client, wire = parties((2, 6))
    batch = client.model.preprocessor(random_samples(4))
    client.step(batch)
    client.model.eval()
    client.answer(batch, max_new_tokens=3)
    assert wire.kinds() == {"activation/values", "gradient/values", "lengths", "scalar/norm"}
    width, vocabulary = client.model.hidden_size, len(client.model.preprocessor.tokenizer)
    for message in (*wire.seen, *wire.returned):
        for name, tensor in message.tensors.items():
            assert name in {"lengths", "scalar/norm"} or tensor.shape[1:] == (width,)
            assert vocabulary not in tensor.shape
            assert not _holds(tensor, batch.question_ids) and not _holds(tensor, batch.labels)
    secret = [client.head.embedding, client.head.projector, client.model.lm_head]
    assert client.tail is not None
    layers = [*client.head.layers, *client.tail.layers, client.tail.norm]
    theirs = {id(p) for part in (*secret, *layers) for p in part.parameters()}
    held = [*wire.server.segment.parameters(), *wire.server.trained]
    assert held and not theirs & {id(parameter) for parameter in held}


def test_a_split_server_sees_labels_but_no_image_and_no_question() -> None:
    client, wire = parties((3,))
    batch = client.model.preprocessor(random_samples(4))
    client.step(batch)
    seen = {name for message in wire.seen for name in message.tensors}
    assert seen == {"activation/values", "lengths", "labels", "scalar/tokens", "scalar/norm"}
    labels = wire.seen[0].tensors["labels"]
    assert sorted(labels[labels != -100].tolist()) == sorted(
        batch.labels[batch.labels != -100].tolist()
    )
    for tensor in wire.seen[0].tensors.values():
        assert not _holds(tensor, batch.question_ids)
    held = {id(parameter) for parameter in wire.server.segment.parameters()}
    theirs = (*client.head.parameters(), *client.model.vision_tower.parameters())
    assert not held & {id(parameter) for parameter in theirs}


@pytest.mark.parametrize(("codec", "bucket"), [(None, 1), ("int8", 8)])
@pytest.mark.parametrize("cuts", CUTS)
def test_hooks_count_exactly_what_parties_send(
    cuts: tuple[int, ...], codec: str | None, bucket: int
) -> None:
    client, wire = parties(cuts, codec, bucket)
    torch.manual_seed(0)
    loss = client.step(client.model.preprocessor(random_samples(4)))
    settings = {"codec": codec, "bucket": bucket}
    paradigm = SplitLearning(cuts[0], **settings) if len(cuts) == 1 else UShapedSplit(cuts, **settings)  # type: ignore[arg-type]  # fmt: skip
    hooks = train(paradigm, 1)
    sent: Counter[str] = Counter()
    for way, messages in (("up", wire.seen), ("down", wire.returned)):
        for message in messages:
            for name, tensor in message.tensors.items():
                size = tensor.numel() * tensor.element_size()
                sent[f"{name.split('/')[0]}/{way}"] += size
    assert sent == hooks.paradigm.traffic.by_kind()
    assert hooks.reports[0] is not None and loss == hooks.reports[0].loss


def _holds(tensor: Tensor, secret: Tensor) -> bool:
    """Return whether a row of secret ids lies anywhere in a tensor, one after another."""
    flat = tensor.double().flatten()
    for row in secret.double():
        ids = row[row > 0]
        if len(flat) >= len(ids) > 1 and bool((flat.unfold(0, len(ids), 1) == ids).all(1).any()):
            return True
    return False
