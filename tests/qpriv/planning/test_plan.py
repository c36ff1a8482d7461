"""Forecasts against the closed forms of LLaVA-1.5-7B, and against what the small model measures."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlavaForConditionalGeneration

from qpriv.errors import ConfigError
from qpriv.models.llava.adapted import AdaptedLlava
from qpriv.models.registry import Backbone, resolve_backbone
from qpriv.paradigms import Centralized, Federated, SplitLearning, UShapedSplit
from qpriv.planning import activation_bytes, make_plan, pass_cost, read_architecture
from qpriv.planning.architecture import count, known_llava
from qpriv.planning.cost import Placement, layer_flops, layer_train_flops
from qpriv.split import Direction
from qpriv.split.codecs import native
from tests.qpriv.defences.toys import Crowd, Narrow
from tests.qpriv.paradigms.runs import BATCH, RECIPE, begin, train
from tests.tiny_models import random_backbone, random_model, random_samples

SEVEN = Backbone("llava-hf/llava-1.5-7b-hf")


@pytest.fixture(scope="module")
def seven():
    return read_architecture(SEVEN)


@pytest.fixture(scope="module")
def small():
    return read_architecture(resolve_backbone(str(random_backbone())))


def test_the_seven_billion_model_is_counted_without_weights(seven):
    assert seven.patches == 576 and seven.layers == 32
    assert seven.lora(32) == 79_953_920
    assert seven.predictor == {
        "utility_scorer": 458_752,
        "sensitivity_head": 65_921,
        "ratio_predictor": 1_182_721,
        "gamma": 1,
    }
    assert sum(seven.predictor.values()) == 1_707_395
    assert (seven.vision.parameters, seven.text.parameters) == (303_507_456, 123_060_480)
    assert seven.projector == 20_979_712
    extra_rows = 64 * 2 * seven.hidden  # of the hub's vocabulary of 32,064
    assert seven.frozen == 7_062_902_784 + extra_rows
    giga = [encoder.flops / 1e9 for encoder in (seven.vision, seven.text, seven.sensitivity)]
    assert giga == pytest.approx([382, 13.3, 12.3], abs=0.1)
    assert round(seven.predictor_flops / 1e9, 2) == 0.34


def test_hooks_and_adapters_find_their_places_in_the_seven_billion_model():
    with torch.device("meta"):
        model = AdaptedLlava(LlavaForConditionalGeneration(known_llava(SEVEN.llava)))
        model.requires_grad_(False)
        model.add_lora(32, 64.0, 0.0, seed=0)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert sum(p.numel() for p in trained.values()) == 79_953_920
    assert len(trained) == 2 * 7 * 32
    assert all(".language_model.layers." in name for name in trained)
    assert len(model.decoder_layers) == 32
    assert model.lm_head.weight.shape == (32_064, 4096)
    assert SplitLearning().place(32) == (16,) and UShapedSplit().place(32) == (8, 24)


# kept, TFLOP of client and server, MiB of one message; 64 text tokens, fp16, cut in the middle
TABLE = [
    (576, 4.276, 4.252, 5.000),
    (288, 2.324, 2.312, 2.750),
    (230, 1.936, 1.927, 2.297),
    (192, 1.683, 1.675, 2.000),
    (128, 1.258, 1.253, 1.500),
    (64, 0.836, 0.833, 1.000),
    (16, 0.520, 0.520, 0.625),
]


@pytest.mark.parametrize(("kept", "client", "server", "message"), TABLE)
def test_operations_and_bytes_of_a_cut_are_the_published_ones(seven, kept, client, server, message):
    plan = make_plan(SEVEN, SplitLearning(), ratio=1 - kept / 576, dtype="float16")
    cost = plan.costs[-1]
    assert (cost.kept, cost.tokens) == (kept, kept + 64)
    assert cost.client_flops / 1e12 == pytest.approx(client, abs=1e-3)
    assert cost.server_flops / 1e12 == pytest.approx(server, abs=1e-3)
    assert round(cost.up / 2**20, 3) == round(cost.down / 2**20, 3) == message
    u_shaped = make_plan(SEVEN, UShapedSplit(), ratio=1 - kept / 576, dtype="float16").costs[-1]
    assert (u_shaped.up + u_shaped.down) / 2**20 == pytest.approx(4 * message, abs=2e-3)


def test_a_plan_follows_the_configuration():
    one = make_plan(SEVEN, SplitLearning(), dtype="bfloat16", micro_batch_size=4)
    quantised = make_plan(SEVEN, SplitLearning(), dtype="bfloat16", quantization="nf4")
    assert (
        quantised.memory["server"]["frozen weights"] < 0.3 * one.memory["server"]["frozen weights"]
    )
    eight = make_plan(SEVEN, SplitLearning(), dtype="bfloat16", optimizer="adamw8bit")
    trained = [plan.memory["server"]["adapters and optimiser"] for plan in (one, eight)]
    # weight, gradient and two moments: of four bytes each, or the moments of one
    assert trained == [16 * 79_953_920 / 2, 10 * 79_953_920 / 2]
    assert quantised.memory["server"]["activations"] == 32 * one.memory["server"]["activations"]
    assert make_plan(SEVEN, SplitLearning(codec="int8")).costs[0].up == 640 * 4100
    assert make_plan(SEVEN, SplitLearning(bucket=100)).costs[0].up == 700 * 4096 * 4
    federated = make_plan(SEVEN, Federated(num_clients=4))
    assert federated.round_bytes == 4 * 79_953_920
    assert federated.costs[0].up == 0 and set(federated.memory) == {"client"}


def test_the_threat_model_says_who_sees_what():
    words = {
        type(paradigm): " ".join(make_plan(SEVEN, paradigm).threats)
        for paradigm in (Centralized(), Federated(num_clients=3), SplitLearning(), UShapedSplit())
    }
    assert "sees every image" in words[Centralized]
    assert "79,953,920 numbers a round" in words[Federated] and "DLG" in words[Federated]
    assert "enters layer 16" in words[SplitLearning] and "told the answers" in words[SplitLearning]
    assert "enters layer 8" in words[UShapedSplit] and "layer 24" in words[UShapedSplit]
    assert "told the answers" not in words[UShapedSplit]


def test_counts_are_those_of_the_loaded_model(small):
    model = random_model()
    assert small.frozen == count(model.llava)
    assert small.text.parameters == count(model.text_encoder)
    assert small.sensitivity.parameters == count(model.sensitivity_encoder)
    assert small.patches == model.preprocessor.num_patches
    model.add_lora(4, 8.0, 0.0, seed=0)
    assert small.lora(4) == sum(p.numel() for p in model.parameters() if p.requires_grad)


@pytest.fixture
def decoder():
    """The small model's decoder with adapters; eager, since only products are counted."""
    model = random_model()
    model.add_lora(4, 8.0, 0.0, seed=0)
    model.stock.set_attn_implementation("eager")
    return model.language_model


def test_operations_are_those_that_are_counted(small, decoder):
    tokens, hidden = 40, small.hidden
    inputs = torch.randn(1, tokens, hidden, requires_grad=True)  # as behind a trained layer
    with FlopCounterMode(display=False) as forward:
        outputs = decoder(inputs_embeds=inputs).last_hidden_state
    with FlopCounterMode(display=False) as backward:
        outputs.sum().backward()
    adapters = 2 * tokens * 4 * small.layer_lora
    expected = small.layers * (layer_flops(small, tokens) + adapters)
    assert forward.get_total_flops() == pytest.approx(expected, rel=0.01)  # and rotary angles
    trained = small.layers * layer_train_flops(small, tokens, 4)
    both = forward.get_total_flops() + backward.get_total_flops()
    assert both == pytest.approx(trained, rel=0.01)


def test_bytes_are_those_that_cross(small):
    samples = random_samples(BATCH)
    for paradigm in (SplitLearning(), UShapedSplit()):
        trained = train(paradigm, 1)
        run = begin(Centralized())
        batch = trained.model.preprocessor(samples)
        decision = run.policy.decide(run.encode(batch), batch.samples)
        lengths = run.model.sequences(batch, decision).attention_mask.sum(dim=1).tolist()
        plan_of = make_plan(resolve_backbone(str(random_backbone())), paradigm)
        placement = Placement(
            paradigm.server_layers(small.layers),
            paradigm.labels_cross,
            plan_of.cuts,
            codec=native(torch.float32),
        )
        costs = [
            pass_cost(small, placement, kept, length - kept, RECIPE.rank)
            for kept, length in zip(decision.counts.tolist(), lengths, strict=True)
        ]
        crossed = trained.paradigm.traffic.by_kind()
        for way, total in (
            (Direction.UP, sum(cost.up for cost in costs)),
            (Direction.DOWN, sum(cost.down for cost in costs)),
        ):
            kinds = (f"activation/{way}", f"gradient/{way}")
            assert sum(crossed.get(kind, 0) for kind in kinds) == total


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_are_about_what_is_kept_for_the_backward_pass(small, dtype):
    model = random_model()
    model.add_lora(4, 8.0, 0.0, seed=0)
    plain = [p for p in model.language_model.parameters() if not p.requires_grad]
    for parameter in plain:
        parameter.data = parameter.data.to(getattr(torch, dtype))
    kept: dict[int, int] = {}

    def keep(tensor):
        source = tensor if tensor._base is None else tensor._base
        if not isinstance(source, torch.nn.Parameter):
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    tokens = 200
    inputs = torch.randn(1, tokens, small.hidden, dtype=getattr(torch, dtype), requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = model.language_model(inputs_embeds=inputs).last_hidden_state
    assert outputs.requires_grad
    forecast = small.layers * activation_bytes(small, tokens, 4, dtype)
    assert sum(kept.values()) == pytest.approx(forecast, rel=0.25)


def test_bytes_are_those_of_what_a_defence_lets_cross(seven):
    """16 numbers a token in place of 4096, in the codec's form; operations are as before."""
    plain, narrow = (
        make_plan(SEVEN, SplitLearning(codec="int8"), defence=defence)
        for defence in (None, Narrow(16))
    )
    assert (plain.costs[0].up, narrow.costs[0].up) == (640 * 4100, 640 * 20)
    assert plain.costs[0].train_flops == narrow.costs[0].train_flops
    assert (plain.defence, narrow.defence) == ("none", "narrow(16,1)")
    assert ", defence narrow(16,1)" in str(narrow) and "defence" not in str(plain).splitlines()[0]
    with pytest.raises(ConfigError, match="has no cut at which narrow"):
        make_plan(SEVEN, Centralized(), defence=Narrow(16))
    with pytest.raises(ConfigError, match="needs 1000 samples of a client at a time"):
        make_plan(SEVEN, SplitLearning(), defence=Crowd())
