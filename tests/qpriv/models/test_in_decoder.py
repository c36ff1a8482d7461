"""Dropping and merging inside the decoder, against a full decoder in which keys are masked."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from qpriv.errors import ModelError
from qpriv.models.batch import VQABatch
from qpriv.models.decoder.sequences import IGNORED, TokenSequences
from qpriv.models.decoder.stages import Stage, StageChoice
from qpriv.models.decoder.token_path import TokenPath
from qpriv.models.llava.prepared import PreparedInputs
from qpriv.models.llava.vision_language import LanguageOutput, VisionLanguageModel
from qpriv.pruning import InDecoderPruning, RandomPruning, decision_at
from qpriv.split import Channel, Kind
from tests.tiny_models import HIDDEN_SIZE, NUM_LAYERS, random_backbone, random_samples
from tests.toy_policies import KeepAll, LastTokenAttention

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
TWICE = (Stage(1, "exit"), Stage(5, "entry"))
PLACES = {
    "exit": (Stage(3, "exit"),),
    "entry": (Stage(3, "entry"),),
    "first layer": (Stage(0, "entry"),),
    "last layer": (Stage(NUM_LAYERS - 1, "exit"),),
    "twice": TWICE,
    "exit and entry at one depth": (Stage(2, "exit"), Stage(3, "entry")),
}


@pytest.fixture(scope="module")
def model() -> VisionLanguageModel:
    """A random model whose LoRA is away from zero, in training, with dropout."""
    model = VisionLanguageModel.from_pretrained(str(random_backbone()))
    model.add_lora(rank=4, dropout=0.1)
    generator = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        if "lora_B" in name:
            value.data = torch.randn(value.shape, generator=generator) * 0.05
    return model.eval()


@pytest.fixture(scope="module")
def batch(model: VisionLanguageModel) -> VQABatch:
    return model.preprocessor(random_samples(4))


@contextmanager
def attention(model: VisionLanguageModel, implementation: str) -> Iterator[None]:
    model.stock.set_attn_implementation(implementation)
    try:
        yield
    finally:
        model.stock.set_attn_implementation("sdpa")


def prepared(
    model: VisionLanguageModel, batch: VQABatch, policy: InDecoderPruning
) -> PreparedInputs:
    features = model.encode(batch, policy.needs)
    return model.prepare(batch, features, policy.decide(features, batch.samples))


# the oracle: every token stays, and layers behind a stage do not see what was dropped there


def dropped_columns(path: TokenPath, layer: int) -> list[Tensor]:
    """Return for each row the columns of the first layer's rows that a layer no longer has."""
    here = [torch.arange(path.start.width) for _ in path.start.image_spans]
    for each in path.shortenings:
        if each.stage.depth <= layer:
            # columns of the rows that arrive, unpadded, then as the stage picks them
            here = [
                columns[torch.cat((chosen,))]
                for columns, chosen in zip(here, each.columns, strict=True)
            ]
            here = [_padded(columns, each.after, row) for row, columns in enumerate(here)]
    gone = []
    for row, columns in enumerate(here):
        real = path.start.attention_mask[row].nonzero()[:, 0].tolist()
        left = set(columns.tolist())
        gone.append(torch.tensor([c for c in real if c not in left], dtype=torch.long))
    return gone


def _padded(columns: Tensor, rows: TokenSequences, row: int) -> Tensor:
    padded = torch.full((rows.width,), -1)
    padded[rows.attention_mask[row].bool()] = columns
    return padded


@contextmanager
def masked(model: VisionLanguageModel, path: TokenPath, positions: str) -> Iterator[None]:
    """Let the stock decoder run on all tokens, blind at each layer to what is dropped by then."""
    additive = model.language_model.config._attn_implementation == "eager"

    def enter(number, layer, args, kwargs):
        hidden = args[0]
        repeats = len(hidden) // len(path.start.input_ids)
        width = hidden.shape[1]
        seen = torch.ones(len(hidden), width, dtype=torch.bool)
        start = path.start.attention_mask.bool().repeat_interleave(repeats, 0)
        seen[:, : start.shape[1]] = start
        places = kwargs["position_ids"].expand(len(hidden), width).clone()
        for row, gone in enumerate(dropped_columns(path, number)):
            for copy in range(row * repeats, (row + 1) * repeats):
                seen[copy, gone] = False
                if len(gone) and positions == "compact":
                    places[copy] = (seen[copy].long().cumsum(0) - 1).clamp(min=0)
        allowed = torch.ones(width, width, dtype=torch.bool).tril() & seen[:, None, None, :]
        allowed = allowed | torch.eye(width, dtype=torch.bool)  # a row must see something
        mask = torch.zeros(allowed.shape).masked_fill(~allowed, -1e9) if additive else allowed
        rotary = model.language_model.rotary_emb(hidden, position_ids=places)
        return args, {**kwargs, "attention_mask": mask, "position_embeddings": rotary}

    with ExitStack() as stack:
        for number, layer in enumerate(model.decoder_layers):
            handle = layer.register_forward_pre_hook(partial(enter, number), with_kwargs=True)
            stack.callback(handle.remove)
        yield


def oracle(model: VisionLanguageModel, inputs: PreparedInputs, positions: str) -> LanguageOutput:
    """Return loss and logits of the full rows; labels of dropped tokens carry none anyway."""
    rows = inputs.answered.start
    with masked(model, inputs.answered, positions):
        return model.llava(
            input_ids=rows.input_ids,
            attention_mask=rows.attention_mask,
            position_ids=rows.position_ids,
            labels=rows.labels,
            mm_encoder_outputs=inputs.image_outputs,
            use_cache=False,
        )


def gradients(model: VisionLanguageModel, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("positions", ["original", "compact"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_dropping_equals_masking_the_keys(model, batch, place, positions, implementation):
    policy = LastTokenAttention(PLACES[place], positions=positions)
    with attention(model, implementation):
        inputs = prepared(model, batch, policy)
        found = model(inputs)
        own = gradients(model, found.loss)
        full = oracle(model, inputs, positions)
        expected = gradients(model, full.loss)
    assert len({int(count) for count in inputs.visual_counts(NUM_LAYERS)}) > 1, "not ragged"
    assert int(inputs.visual_counts(NUM_LAYERS).max()) < 64
    assert_close(found.loss, full.loss, **CLOSE)
    gone = dropped_columns(inputs.answered, NUM_LAYERS)
    for row, mask in enumerate(inputs.answered.start.attention_mask.bool()):
        kept = mask.clone()
        kept[gone[row]] = False
        real = found.sequences.attention_mask[row].bool()
        assert_close(found.logits[row][real], full.logits[row][kept], **CLOSE)
    assert own.keys() == expected.keys() and len(own) == 2 * 7 * NUM_LAYERS
    for name, gradient in expected.items():
        assert_close(own[name], gradient, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("positions", ["original", "compact"])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("place", ["exit", "first layer", "twice"])
def test_generation_with_cache_equals_masking_without(
    model, batch, place, positions, beams, implementation
):
    policy = LastTokenAttention(PLACES[place], positions=positions)
    with attention(model, implementation):
        inputs = prepared(model, batch, policy)
        answers = model.answer(inputs, max_new_tokens=6, num_beams=beams)
        rows = inputs.prompt.start
        with torch.no_grad(), masked(model, inputs.prompt, positions):
            ids = model.llava.generate(
                input_ids=rows.input_ids,
                attention_mask=rows.attention_mask,
                mm_encoder_outputs=inputs.image_outputs,
                max_new_tokens=6,
                num_beams=beams,
                do_sample=False,
                use_cache=False,
                eos_token_id=model.preprocessor.tokenizer.eos_token_id,
                pad_token_id=model.preprocessor.pad_token,
            )
    texts = model.preprocessor.tokenizer.batch_decode(
        ids[:, rows.width :], skip_special_tokens=True
    )
    assert answers == [text.strip() for text in texts]
    assert len(set(answers)) > 1


# nothing dropped


def test_keeping_everything_is_the_stock_model_bit_for_bit(model, batch):
    policy = KeepAll(TWICE)
    inputs = prepared(model, batch, policy)
    found, stock = model(inputs), model(batch)
    assert torch.equal(found.loss, stock.loss) and torch.equal(found.logits, stock.logits)
    assert torch.equal(found.labels, stock.labels) and found.image_spans == stock.image_spans
    own, expected = gradients(model, found.loss), gradients(model, stock.loss)
    assert own.keys() == expected.keys()
    assert all(torch.equal(own[name], expected[name]) for name in own)
    for beams in (1, 3):
        assert model.answer(inputs, num_beams=beams) == model.answer(batch, num_beams=beams)
    scores, plain = model.answer_log_probs(inputs), model.answer_log_probs(batch)
    assert torch.equal(scores.log_prob, plain.log_prob)


# rows, padding, checkpointing


@pytest.mark.parametrize("merge", [0, 3])
def test_a_batch_equals_its_samples_one_by_one(model, batch, merge):
    policy = LastTokenAttention(TWICE, merge=merge)
    inputs = prepared(model, batch, policy)
    together = model(inputs)
    for row in range(4):
        alone_inputs = prepared(model, batch[row : row + 1], policy)
        alone = model(alone_inputs)
        for cut in range(NUM_LAYERS + 1):
            assert torch.equal(alone_inputs.patches(cut)[0], inputs.patches(cut)[row])
        real, mine = (r.attention_mask.bool() for r in (together.sequences, alone.sequences))
        assert_close(together.logits[row][real[row]], alone.logits[0][mine[0]], **CLOSE)
        assert together.image_spans[row] == alone.image_spans[0]
        for beams in (1, 3):
            (answer,) = model.answer(alone_inputs, max_new_tokens=5, num_beams=beams)
            assert answer == model.answer(inputs, max_new_tokens=5, num_beams=beams)[row]


@pytest.mark.parametrize("merge", [0, 3])
def test_left_and_right_padding_agree(model, batch, merge):
    """Training pads right, generation pads left: the next token must be the same."""
    inputs = prepared(model, batch, LastTokenAttention(TWICE, merge=merge))
    first = model.answer(inputs, max_new_tokens=1)
    output = model(inputs)
    starts = (output.labels != IGNORED).long().argmax(dim=1)
    ids = output.logits[torch.arange(4), starts - 1].argmax(dim=-1)
    decode = model.preprocessor.tokenizer.decode
    assert first == [decode([int(token)], skip_special_tokens=True) for token in ids]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("merge", [0, 3])
def test_gradient_checkpointing_changes_no_gradient(model, batch, reentrant, merge):
    inputs = prepared(model, batch, LastTokenAttention(TWICE, merge=merge))
    plain = gradients(model, model(inputs).loss)
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.eval()
    model.stock.activation_checkpointing_enable({"use_reentrant": reentrant})
    try:
        model.stock.enable_input_require_grads()
        found = gradients(model, model(inputs).loss)
    finally:
        model.stock.disable_input_require_grads()
        model.stock.activation_checkpointing_disable()
        model.eval()
    assert plain.keys() == found.keys()
    for name, gradient in plain.items():
        assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)


def test_merged_tokens_are_their_weights_times_what_arrived(model, batch):
    policy = LastTokenAttention((Stage(3),), merge=3)
    inputs = prepared(model, batch, policy)
    seen: dict[str, Tensor] = {}
    entered = model.decoder_layers[4].register_forward_pre_hook(
        lambda layer, args: seen.update(after=args[0].detach())
    )
    with torch.no_grad():
        model(inputs)
    entered.remove()
    whole = KeepAll((Stage(3),))
    left = model.decoder_layers[3].register_forward_hook(
        lambda layer, args, output: seen.update(before=output.detach())
    )
    with torch.no_grad():
        model(prepared(model, batch, whole))
    left.remove()
    before, after = inputs.answered.start, inputs.answered.at(4)
    for row, choice in enumerate(inputs.answered.shortenings[0].choices):
        start, stop = before.image_spans[row]
        arriving = seen["before"][row, start:stop]
        begin, end = after.image_spans[row]
        expected = torch.cat((arriving[choice.kept], choice.merging @ arriving))
        assert_close(seen["after"][row, begin:end], expected, **CLOSE)
    assert inputs.visual_counts(4).tolist() == [len(c.kept) + 3 for c in
                                                inputs.answered.shortenings[0].choices]  # fmt: skip


# who decides, by what


def test_the_choice_is_that_of_the_stock_models_attention_maps(model, batch):
    policy = LastTokenAttention((Stage(2),), share=0.4)
    inputs = prepared(model, batch, policy)
    rows = inputs.prompt.start
    with attention(model, "eager"), model.without_adapters(), torch.no_grad():
        maps = model.stock.model(
            input_ids=rows.input_ids,
            attention_mask=rows.attention_mask,
            position_ids=rows.position_ids,
            mm_encoder_outputs=inputs.image_outputs,
            output_attentions=True,
        ).attentions[2]
    for row, (start, stop) in enumerate(rows.image_spans):
        kept = inputs.reports()[0].kept[row]
        score = maps[row, :, -1, start:stop].mean(dim=0)
        expected = score.argsort(descending=True, stable=True)[: len(kept)].sort().values
        assert torch.equal(kept, expected)


def test_choices_depend_on_neither_mode_nor_answer_nor_adapters(model, batch):
    policy = LastTokenAttention(TWICE)
    expected = prepared(model, batch, policy).reports()
    flags = [p.requires_grad for p in model.parameters()]
    answers = [replace(sample, answer="a blue triangle") for sample in batch.samples]
    model.train()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    found = prepared(model, model.preprocessor(answers), policy).reports()
    assert torch.equal(torch.get_rng_state(), state), "a decision drew random numbers"
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(part.training for part in model.decoder_layers.modules())
    model.eval()
    for one, other in zip(expected, found, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.kept, other.kept, strict=True))
    asked = prepared(model, batch, LastTokenAttention(TWICE, adapters=True)).reports()
    assert any(
        not torch.equal(a, b) for a, b in zip(expected[1].kept, asked[1].kept, strict=True)
    ), "adapters made no difference"
    with model.without_adapters():
        resting = prepared(model, batch, LastTokenAttention(TWICE, adapters=True)).reports()
    assert all(torch.equal(a, b) for a, b in zip(expected[1].kept, resting[1].kept, strict=True))


def test_a_first_share_is_dropped_before_the_decoder(model, batch):
    class Both(LastTokenAttention):
        def first(self, features, samples):
            return RandomPruning(0.5).decide(features, samples)

    policy = Both((Stage(3),))
    features = model.encode(batch)
    whole = policy.decide(features, batch.samples)
    inputs = model.prepare(batch, features, whole)
    assert inputs.visual_counts(3).tolist() == [32] * 4
    for row, kept in enumerate(inputs.reports()[0].kept):
        assert set(kept.tolist()) < set(whole.kept[row].tolist())
    assert model(inputs).loss.isfinite()


def test_what_restarts_equals_a_decision_before_the_decoder(model, batch):
    policy = LastTokenAttention((Stage(1),), restarts=True)
    inputs = prepared(model, batch, policy)
    decided = prepared(model, batch, LastTokenAttention((Stage(1),)))
    features = model.encode(batch)
    whole = policy.decide(features, batch.samples)
    kept = decided.reports()[0].kept
    early = decision_at(whole, inputs, 0)
    assert all(torch.equal(a, b) for a, b in zip(early.kept, kept, strict=True))
    assert_close(model(inputs).logits, model(batch, features, early).logits, **CLOSE)
    assert inputs.visual_counts(0).tolist() == [len(own) for own in kept]
    assert not inputs.stages and model.answer(inputs) == model.answer(batch, features, early)


def test_merged_tokens_cannot_restart(model, batch):
    with pytest.raises(ModelError, match="cannot start again"):
        prepared(model, batch, LastTokenAttention((Stage(1),), restarts=True, merge=2))


# crossings


def hidden_states(model: VisionLanguageModel, inputs: PreparedInputs, cut: int) -> Tensor:
    states: list[Tensor] = []
    handle = model.decoder_layers[cut].register_forward_pre_hook(
        lambda layer, args: states.append(args[0].detach())
    )
    model(inputs)
    handle.remove()
    return states[0]


@pytest.mark.parametrize(
    ("stage", "passed"),
    [
        (Stage(3, "exit"), (False, False, True, True)),
        (Stage(4, "entry"), (False, False, False, True)),
    ],
    ids=str,
)
@pytest.mark.parametrize("merge", [0, 3])
def test_a_cut_records_what_exists_at_its_own_depth(model, batch, stage, passed, merge):
    """Before, at and behind a stage; what the next layer's own queries drop has crossed before."""
    inputs = prepared(model, batch, LastTokenAttention((stage,), merge=merge))
    counts = inputs.visual_counts(NUM_LAYERS)
    for cut, dropped in zip((2, 3, 4, 5), passed, strict=True):
        with Channel.supposed((cut,)).record(model, gradients=True) as transcript:
            model.zero_grad()
            model(inputs).loss.backward()
        visual = counts if dropped else torch.full((4,), 64)
        text = batch.attention_mask.sum(dim=1) - 64
        rows, gradient = transcript.rows(cut), transcript.rows(cut, Kind.GRADIENT)
        assert [len(row) for row in rows] == (visual + text).tolist()
        assert [len(row) for row in gradient] == (visual + text).tolist()
        assert [len(row) for row in transcript.image_rows(cut)] == visual.tolist()
        whole = inputs.answered.at(cut)
        with torch.no_grad():
            padded = hidden_states(model, inputs, cut)
        if stage != Stage(cut, "entry"):
            for row, mask in enumerate(whole.attention_mask.bool()):
                start, stop = whole.image_spans[row]
                assert torch.equal(rows[row], padded[row][mask])
                assert torch.equal(transcript.image_rows(cut)[row], padded[row, start:stop])
        size = int((visual + text).sum()) * HIDDEN_SIZE * 4
        assert transcript.num_bytes(kind=Kind.ACTIVATION) == size
        assert transcript.num_bytes(kind=Kind.GRADIENT) == size
        assert int(Channel.supposed((cut,)).activation_bytes(model, inputs).sum()) == size
        assert transcript.num_bytes(kind=Kind.LENGTHS) == 4 * 8
        assert not transcript.rows(cut, Kind.POSITIONS)


def test_a_cut_behind_original_positions_tells_which_patches_were_kept(model, batch):
    inputs = prepared(model, batch, LastTokenAttention((Stage(3),), positions="original"))
    with Channel.supposed((2, 5)).record(model) as transcript, torch.no_grad():
        model(inputs)
    assert not transcript.rows(2, Kind.POSITIONS)
    with Channel.supposed((5,)).record(model) as transcript, torch.no_grad():
        model(inputs)
    for row, positions in enumerate(transcript.rows(5, Kind.POSITIONS)):
        start, stop = transcript.select(5)[0].spans[row]
        assert torch.equal(positions[start:stop] - start, inputs.reports()[0].kept[row])


def test_generation_crosses_as_it_is_at_the_cut(model, batch):
    inputs = prepared(model, batch, LastTokenAttention(TWICE))
    plain = model.answer(inputs, max_new_tokens=4)
    for beams in (1, 3):
        with Channel.supposed((2, 6)).record(model) as transcript:
            answers = model.answer(inputs, max_new_tokens=4, num_beams=beams)
        assert beams > 1 or answers == plain
        for cut in (2, 6):
            (whole,) = transcript.select(cut)
            expected = inputs.visual_counts(cut).repeat_interleave(beams)
            assert [stop - start for start, stop in whole.spans] == expected.tolist()
            single = [m for m in transcript.messages if m.cut == cut and not m.prefill]
            assert single and all(len(row) == 1 for message in single for row in message.rows)


def test_recording_changes_no_bit(model, batch):
    inputs = prepared(model, batch, LastTokenAttention(TWICE, merge=2))
    plain = model(inputs)
    own = gradients(model, plain.loss)
    with Channel.supposed((2, 6)).record(model, gradients=True):
        seen = model(inputs)
        found = gradients(model, seen.loss)
    assert torch.equal(plain.loss, seen.loss)
    assert all(torch.equal(own[name], found[name]) for name in own)


# figures


def test_kept_tokens_are_those_at_the_cut_and_their_mean_is_over_layers(model, batch):
    inputs = prepared(model, batch, LastTokenAttention(TWICE))
    first, last = inputs.visual_counts(2), inputs.visual_counts(NUM_LAYERS)
    assert inputs.visual_counts(1).tolist() == [64] * 4  # layer 1 is the one that decides
    assert inputs.visual_counts(5).tolist() == first.tolist()
    expected = (2 * 64 + 3 * first + 3 * last).double() / NUM_LAYERS
    assert_close(inputs.mean_visual_counts(NUM_LAYERS), expected)
    alive = [inputs.answered.inside(layer).visual_counts for layer in range(NUM_LAYERS)]
    assert_close(inputs.mean_visual_counts(NUM_LAYERS), torch.stack(alive).double().mean(dim=0))
    assert torch.equal(model(inputs).path.end.visual_counts, last)


def test_mixing_follows_the_patches_through_every_stage(model, batch):
    inputs = prepared(model, batch, LastTokenAttention((Stage(1), Stage(4)), merge=2))
    assert inputs.mixing(1) is None
    for cut in (2, 5):
        mixing, patches = inputs.mixing(cut), inputs.patches(cut)
        assert mixing is not None
        for row, weights in enumerate(mixing):
            assert weights.shape == (int(inputs.visual_counts(cut)[row]), 64)
            assert_close(weights.sum(dim=1), torch.ones(len(weights)))  # means of means
            for token, patch in enumerate(patches[row].tolist()):
                single = weights[token].nonzero()[:, 0].tolist()
                assert single == [patch] if patch >= 0 else len(single) > 1
    last = inputs.mixing(5)
    assert last is not None
    assert all(bool((weights.sum(dim=0) > 0).all()) for weights in last)  # nothing got lost


def test_hooks_are_gone_afterwards_and_refuse_another_batch(model, batch):
    inputs = prepared(model, batch, LastTokenAttention(TWICE))

    def hooks() -> list[int]:  # transformers leaves some of its own where maps were asked for
        layers = model.decoder_layers
        return [len(layer._forward_pre_hooks) + len(layer._forward_hooks) for layer in layers]

    before = hooks()
    with pytest.raises(RuntimeError, match="open the hooks for the batch that runs"):
        with LastTokenAttention(TWICE).hooks(model, inputs):
            assert sum(hooks()) == sum(before) + 1 + (NUM_LAYERS - 2)
            model.stock(input_ids=torch.ones(4, 7, dtype=torch.long))
    assert hooks() == before


class Wrong(LastTokenAttention):
    def __init__(self, kept: Sequence[int], merging: Tensor | None = None, **settings: object):
        super().__init__(**settings)  # type: ignore[arg-type]
        self.choice = StageChoice(torch.tensor(kept), merging)

    def choose(self, number, view):
        return self.choice


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Wrong([2, 1]), "not sorted, unique and below 64 .in exit of layer 3, row 0"),
        (Wrong([0, 64]), "not sorted, unique and below 64"),
        (Wrong([0.0, 1.0]), "torch.float32"),
        (Wrong([0], torch.ones(1, 63)), r"shape \[1, 63\] do not merge 64 tokens"),
        (Wrong([0], torch.full((1, 64), torch.nan)), "do not merge"),
        (Wrong(range(64), torch.ones(1, 64)), "64 kept and 1 merged are more than 64"),
        (Wrong([0], torch.ones(1, 64), positions="original"), "no original position"),
    ],
)
def test_choices_that_do_not_fit_are_refused(model, batch, policy, message):
    with pytest.raises(ModelError, match=message):
        prepared(model, batch, policy)


def test_nothing_at_all_may_go_on(model, batch):
    nothing = Wrong([0])
    nothing.choice = StageChoice(torch.empty(0, dtype=torch.int64))
    inputs = prepared(model, batch, nothing)
    assert inputs.visual_counts(NUM_LAYERS).tolist() == [0] * 4
    assert model(inputs).loss.isfinite() and len(model.answer(inputs)) == 4
