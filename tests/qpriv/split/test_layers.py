"""The model taken apart equals the model: bit for bit, in loss, gradients and generated tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from qpriv.models.decoder.sequences import TokenSequences, image_features
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.pruning.decision import PruningDecision
from qpriv.split import Channel, Kind
from qpriv.split.layers import Head, Segment, Tail, unpack_labels
from qpriv.split.layout import TokenLayout
from tests.qpriv.split.test_crossing import ragged
from tests.tiny_models import NUM_LAYERS, padded, random_samples

Gradients = dict[str, Tensor]


def sequences(model: VisionLanguageModel, side: str, decision: PruningDecision) -> TokenSequences:
    batch = model.preprocessor(random_samples(4))
    return padded(model, batch, decision, side)


def kept_features(model: VisionLanguageModel, decision: PruningDecision) -> list[Tensor]:
    batch = model.preprocessor(random_samples(4))
    return image_features(model.encode(batch).patches, decision)


def gradients(model: VisionLanguageModel) -> Gradients:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def whole(model: VisionLanguageModel, tokens: TokenSequences) -> tuple[Tensor, Gradients]:
    model.zero_grad()
    inputs = model.prepare(model.preprocessor(random_samples(4)), None, ragged())
    output = model.llava(
        input_ids=tokens.input_ids,
        attention_mask=tokens.attention_mask,
        position_ids=tokens.position_ids,
        labels=tokens.labels,
        mm_encoder_outputs=inputs.image_outputs,
        use_cache=False,
    )
    output.loss.backward()
    return output.loss.detach(), gradients(model)


def crossed(hidden: Tensor, layout: TokenLayout) -> tuple[Tensor, Tensor]:
    """Return what arrives: a leaf of real tokens, and the receiver's padded batch of it."""
    leaf = layout.pack(hidden.detach()).requires_grad_()
    return leaf, layout.unpack(leaf)


def apart(
    model: VisionLanguageModel, tokens: TokenSequences, cuts: tuple[int, ...]
) -> tuple[Tensor, Gradients]:
    model.zero_grad()
    layout = TokenLayout.of(tokens)
    head, tail = Head(model, cuts[0]), Tail(model, cuts[-1])
    bodies = [Segment(model, a, b) for a, b in pairwise(cuts)]
    hidden = head(
        head.embed(tokens.input_ids, kept_features(model, ragged())),
        tokens.attention_mask,
        tokens.position_ids,
    )
    sent, leaves = [hidden], []
    for body in bodies:
        leaf, padded = crossed(sent[-1], layout)
        leaves.append(leaf)
        sent.append(body(padded, layout.mask, layout.position_ids))
    leaf, padded = crossed(sent[-1], layout)
    leaves.append(leaf)
    hidden = tail(padded, layout.mask, layout.position_ids)
    loss = tail.loss(hidden, unpack_labels(layout, layout.pack(tokens.labels).int()))
    loss.backward()
    for output, leaf in zip(reversed(sent), reversed(leaves), strict=True):
        assert leaf.grad is not None
        output.backward(layout.unpack(leaf.grad))
    return loss.detach(), gradients(model)


@contextmanager
def attention(model: VisionLanguageModel, implementation: str) -> Iterator[None]:
    before = model.language_model.config._attn_implementation
    model.stock.set_attn_implementation(implementation)
    try:
        yield
    finally:
        model.stock.set_attn_implementation(before)


@contextmanager
def checkpointing(model: VisionLanguageModel, on: bool) -> Iterator[None]:
    if on:
        model.stock.activation_checkpointing_enable({"use_reentrant": False})
    try:
        yield
    finally:
        if on:
            model.stock.activation_checkpointing_disable()


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("cuts", [(4,), (2, 6)])
def test_hooks_and_parties_equal_the_whole_bit_for_bit(
    model: VisionLanguageModel,
    cuts: tuple[int, ...],
    implementation: str,
    side: str,
    checkpointed: bool,
) -> None:
    tokens = sequences(model, side, ragged())
    with attention(model, implementation), checkpointing(model, checkpointed):
        loss, expected = whole(model, tokens)
        with Channel(cuts).record(model, gradients=True) as transcript:
            hooked = whole(model, tokens)
        parted = apart(model, tokens, cuts)
    assert len(expected) == 2 * 7 * NUM_LAYERS
    assert all(gradient.abs().max() > 0 for gradient in expected.values())
    for seen, found in (hooked, parted):
        assert torch.equal(loss, seen) and expected.keys() == found.keys()
        assert all(torch.equal(expected[name], found[name]) for name in expected)
    lengths = tokens.attention_mask.sum(dim=1).tolist()
    for cut, kind in product(cuts, (Kind.ACTIVATION, Kind.GRADIENT)):
        assert [len(row) for row in transcript.rows(cut, kind)] == lengths


def test_gapped_positions_cross_and_are_used(model: VisionLanguageModel) -> None:
    batch, decision = model.preprocessor(random_samples(4)), ragged()
    tokens = model.sequences(batch, decision, positions="original")
    layout = TokenLayout.of(tokens)
    real = tokens.attention_mask.bool()
    assert torch.equal(layout.position_ids[real], tokens.position_ids[real])
    assert layout.positions is not None and len(layout.positions) == int(real.sum())
    assert TokenLayout.of(model.sequences(batch, decision)).positions is None


@pytest.mark.parametrize("cuts", [(4,), (2, 6)])
def test_parties_own_their_layers_and_nothing_else(
    model: VisionLanguageModel, cuts: tuple[int, ...]
) -> None:
    head, tail = Head(model, cuts[0]), Tail(model, cuts[-1])
    bodies = [Segment(model, a, b) for a, b in pairwise(cuts)]
    owned = [{id(p) for p in part.parameters()} for part in (head, *bodies, tail)]
    assert sum(map(len, owned)) == len(set.union(*owned)), "two parties own one weight"
    decoder = {id(p) for p in model.language_model.parameters()}
    rest = {id(p) for part in (model.projector, model.lm_head) for p in part.parameters()}
    assert set.union(*owned) == decoder | rest
    for body in bodies:
        layers = {id(p) for layer in model.decoder_layers[2:6] for p in layer.parameters()}
        assert {id(p) for p in body.parameters()} == layers
