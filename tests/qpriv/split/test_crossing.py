from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from qpriv.errors import ConfigError
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.pruning.decision import PruningDecision
from qpriv.split import Channel, Direction, Kind, StageContext, Stages
from qpriv.split.crossing import Crossing
from tests.tiny_models import HIDDEN_SIZE, NUM_LAYERS, NUM_PATCHES, random_backbone, random_samples

CUT = 4
CHANNEL = Channel((CUT,))


@pytest.fixture(scope="module")
def lora_model() -> VisionLanguageModel:
    model = VisionLanguageModel.from_pretrained(str(random_backbone()))
    model.add_lora(rank=4)
    generator = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        if "lora_B" in name:  # zero at the start: gradients of A would vanish
            value.data = torch.randn(value.shape, generator=generator) * 0.05
    return model.train()


@pytest.fixture
def model(lora_model: VisionLanguageModel) -> Iterator[VisionLanguageModel]:
    yield lora_model
    lora_model.zero_grad()
    assert not hooks(lora_model), "a hook was left behind"


def hooks(model: VisionLanguageModel) -> list[object]:
    """Return our hooks; transformers places some of its own at the first call."""
    return [
        hook
        for module in model.modules()
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
        if isinstance(getattr(hook, "__self__", None), Crossing)
    ]


def ragged(counts: tuple[int, ...] = (64, 20, 7, 33)) -> PruningDecision:
    generator = torch.Generator().manual_seed(1)
    kept = tuple(torch.randperm(NUM_PATCHES, generator=generator)[:k].sort().values for k in counts)
    return PruningDecision(kept, NUM_PATCHES, torch.zeros(len(counts)))


def step(model: VisionLanguageModel) -> tuple[Tensor, dict[str, Tensor]]:
    batch = model.preprocessor(random_samples(4))
    model.zero_grad()
    loss = model(batch, None, ragged()).loss
    loss.backward()
    return loss.detach(), {
        name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
    }


def test_recording_right_behind_the_projector_changes_no_bit(model: VisionLanguageModel) -> None:
    """Of loss and gradients; for other cuts, attention, padding and checkpointing: test_parties."""
    loss, gradients = step(model)
    with Channel((0,)).record(model, gradients=True):
        seen_loss, seen_gradients = step(model)
    assert torch.equal(loss, seen_loss)
    assert gradients.keys() == seen_gradients.keys() and len(gradients) == 2 * 7 * NUM_LAYERS
    assert all(torch.equal(gradients[name], seen_gradients[name]) for name in gradients)


def test_bytes_are_the_closed_form(model: VisionLanguageModel) -> None:
    decision = ragged()
    batch = model.preprocessor(random_samples(4))
    with CHANNEL.record(model, gradients=True) as transcript:
        model(batch, None, decision).loss.backward()
    text = batch.attention_mask.sum(dim=1) - NUM_PATCHES
    expected = int((decision.counts + text).sum()) * HIDDEN_SIZE * 4
    assert transcript.num_bytes(kind=Kind.ACTIVATION, direction=Direction.UP) == expected
    assert transcript.num_bytes(kind=Kind.GRADIENT, direction=Direction.DOWN) == expected
    assert transcript.num_bytes(kind=Kind.LENGTHS) == 4 * 8
    assert transcript.num_bytes() == 2 * expected + 32
    assert (
        int(CHANNEL.activation_bytes(model, model.prepare(batch, None, decision)).sum()) == expected
    )
    with CHANNEL.record(model, store=False) as sizes:
        model(batch, None, decision)
    assert sizes.num_bytes(kind=Kind.ACTIVATION) == expected
    assert sizes.rows(CUT) == []


def test_rows_are_the_decoders_hidden_states(model: VisionLanguageModel) -> None:
    decision = ragged()
    batch = model.preprocessor(random_samples(4))
    sequences = model.sequences(batch, decision)
    layer, states = model.decoder_layers[CUT], []
    handle = layer.register_forward_pre_hook(lambda m, args: states.append(args[0].detach()))
    with CHANNEL.record(model) as transcript:
        model(batch, None, decision)
    handle.remove()
    for row, (start, stop) in enumerate(sequences.image_spans):
        real = states[0][row, : int(sequences.attention_mask[row].sum())]
        assert torch.equal(transcript.rows(CUT)[row], real)
        assert torch.equal(transcript.image_rows(CUT)[row], real[start:stop])
        assert len(transcript.image_rows(CUT)[row]) == decision.counts[row]
        assert torch.equal(transcript.text_rows(CUT)[row], real[stop:])


def test_recorded_gradient_is_the_losss_derivative(model: VisionLanguageModel) -> None:
    batch = model.preprocessor(random_samples(2))
    with CHANNEL.record(model, gradients=True) as transcript:
        model(batch).loss.backward()
    gradient = transcript.rows(CUT, Kind.GRADIENT)[0]
    direction = gradient / gradient.norm()

    def nudged(amount: float) -> Tensor:
        def encode(rows: Tensor, context: StageContext) -> Tensor:
            moved = rows.clone()
            moved[: len(direction)] += amount * direction
            return moved

        tapped = CHANNEL.tapped(CUT, Stages(encode=encode))
        with torch.no_grad(), tapped.record(model):
            loss: Tensor = model(batch).loss.double()
            return loss

    slope = (nudged(1e-2) - nudged(-1e-2)) / 2e-2
    assert float(gradient.norm()) == pytest.approx(float(slope), rel=0.02)


def test_generation_crosses_once_whole_and_then_token_by_token(
    model: VisionLanguageModel,
) -> None:
    batch = model.preprocessor(random_samples(4))
    plain = model.answer(batch, None, ragged(), max_new_tokens=4)
    with CHANNEL.record(model) as transcript:
        assert model.answer(batch, None, ragged(), max_new_tokens=4) == plain
    whole = transcript.select(CUT)
    assert len(whole) == 1
    assert [b - a for a, b in whole[0].spans] == ragged().counts.tolist()
    steps = [m for m in transcript.messages if not m.prefill]
    assert all(len(row) == 1 for message in steps for row in message.rows)
    assert len(steps) <= 3


def test_one_question_alone_crosses_as_it_does_among_others(model: VisionLanguageModel) -> None:
    alone = model.preprocessor(random_samples(1))
    with CHANNEL.record(model) as transcript:
        model.answer(alone, max_new_tokens=4)
    kinds = [(message.kind, message.prefill) for message in transcript.messages]
    assert kinds[:2] == [(Kind.ACTIVATION, True), (Kind.LENGTHS, True)]
    assert set(kinds[2:]) == {(Kind.ACTIVATION, False)}


def test_positions_cross_only_where_they_tell_something(model: VisionLanguageModel) -> None:
    batch = model.preprocessor(random_samples(4))
    decision = ragged()
    with CHANNEL.record(model) as transcript:
        model(batch, None, decision)
    assert transcript.rows(CUT, Kind.POSITIONS) == []
    with CHANNEL.record(model) as transcript:
        model(batch, None, decision, positions="original")
    positions = transcript.rows(CUT, Kind.POSITIONS)
    tokens = sum(map(len, transcript.rows(CUT)))
    assert transcript.num_bytes(kind=Kind.POSITIONS) == tokens * 8
    start = transcript.select(CUT)[0].spans[1][0]
    assert torch.equal(positions[1][start : start + 20] - start, decision.kept[1])


def test_stages_sit_on_either_side_of_what_is_recorded(model: VisionLanguageModel) -> None:
    batch = model.preprocessor(random_samples(2))
    stages = Stages(
        encode=lambda rows, context: rows * 2,
        decode=lambda rows, context: rows / 2,
        encode_gradient=lambda gradient, context: torch.ones_like(gradient),
        decode_gradient=lambda gradient, context: torch.zeros_like(gradient),
    )
    with CHANNEL.record(model) as plain:
        loss = model(batch).loss
    with CHANNEL.tapped(CUT, stages).record(model, gradients=True) as transcript:
        changed = model(batch).loss
        changed.backward()
    assert torch.equal(loss, changed)  # scaling by two and back is exact
    assert torch.equal(transcript.rows(CUT)[0], plain.rows(CUT)[0] * 2)
    assert (transcript.rows(CUT, Kind.GRADIENT)[0] == 1).all()
    before = [p.grad for n, p in model.named_parameters() if ".layers.0." in n and "lora_" in n]
    behind = [p.grad for n, p in model.named_parameters() if ".layers.7." in n and "lora_" in n]
    assert all((g == 0).all() for g in before if g is not None)  # the hijack reached the client
    assert any((g != 0).any() for g in behind if g is not None)


@pytest.mark.parametrize("cuts", [(NUM_LAYERS,), (-1,), (6, 2), (2, 2)])
def test_impossible_cuts_are_refused(model: VisionLanguageModel, cuts: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError), Channel(cuts).record(model):
        pass
