import pytest
import torch
from safetensors.torch import load_file

from qpriv.errors import CheckpointError, ConfigError
from qpriv.models.llava.lora import adapted_modules
from tests.tiny_models import HIDDEN_SIZE, NUM_LAYERS, random_model, random_samples

LAYER = "base_model.model.model.language_model.layers"


@pytest.fixture(scope="module")
def adapted():
    model = random_model()
    model.add_lora(rank=4, alpha=8)
    return model


def test_adapts_seven_projections_of_every_decoder_layer_and_nothing_else(adapted):
    names = adapted_modules(adapted.llava, "default")
    assert len(names) == 7 * NUM_LAYERS
    assert all(name.startswith(LAYER) for name in names)
    assert {name.rsplit(".", 1)[1] for name in names} == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip


def test_a_second_adapter_can_cover_some_layers_only():
    model = random_model()
    model.add_lora(rank=2, adapter="body", layers=range(2, 6))
    model.add_lora(rank=2, adapter="client", layers=(0, 1, 6, 7))
    for adapter, layers in (("body", {2, 3, 4, 5}), ("client", {0, 1, 6, 7})):
        names = adapted_modules(model.llava, adapter)
        assert len(names) == 7 * 4
        assert {int(name.removeprefix(LAYER).split(".")[1]) for name in names} == layers
    assert model.llava.active_adapters == ["body"]


def test_trains_the_adapter_alone(adapted):
    trained = [weight for weight in adapted.parameters() if weight.requires_grad]
    # r (4 * 2 d + 3 (d + m)) a layer
    per_layer = 4 * (4 * 2 * HIDDEN_SIZE + 3 * (HIDDEN_SIZE + 128))
    assert sum(weight.numel() for weight in trained) == NUM_LAYERS * per_layer
    adapted.train()
    batch = adapted.preprocessor(random_samples(2))
    adapted(batch).loss.backward()
    reached = {name for name, weight in adapted.named_parameters() if weight.grad is not None}
    assert reached == {name for name, weight in adapted.named_parameters() if "lora_" in name}


def test_an_untrained_adapter_changes_nothing(adapted):
    batch = adapted.preprocessor(random_samples(2))
    plain = random_model()
    adapted.eval()
    assert torch.equal(adapted(batch).logits, plain(batch).logits)
    assert adapted.answer(batch) == plain.answer(batch)


def test_parts_resolve_with_and_without_peft(adapted):
    plain = random_model()
    for name in ("num_layers", "hidden_size", "num_patches", "grid", "feature_sizes"):
        assert getattr(adapted, name) == getattr(plain, name)
    for name in ("decoder_layers", "lm_head", "vision_tower", "projector", "language_model"):
        assert type(getattr(adapted, name)) is type(getattr(plain, name))


def test_initial_weights_depend_on_the_seed_alone():
    states = []
    for noise, seed in ((1, 0), (2, 0), (1, 5)):
        model = random_model()
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        model.add_lora(rank=2, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        states.append(model.adapter_state())
    first, again, other = states
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_state_round_trip_is_bit_exact_and_has_pefts_keys(adapted, tmp_path):
    model = random_model()
    model.add_lora(rank=4, alpha=8, seed=3)
    state = {name: torch.randn_like(weight) for name, weight in model.adapter_state().items()}
    model.load_adapter_state(state)
    loaded = model.adapter_state()
    assert all(torch.equal(loaded[name], state[name]) for name in state)
    model.llava.save_pretrained(tmp_path)
    assert load_file(tmp_path / "adapter_model.safetensors").keys() == state.keys()


def test_state_is_a_copy(adapted):
    state = adapted.adapter_state()
    next(iter(state.values())).fill_(7.0)
    assert not any((weight == 7.0).all() for weight in adapted.adapter_state().values())


def test_a_state_that_does_not_fit_is_refused(adapted):
    state = adapted.adapter_state()
    name = min(state)
    with pytest.raises(CheckpointError, match=f"1 of {len(state)} adapter weights"):
        adapted.load_adapter_state({key: state[key] for key in state if key != name})
    with pytest.raises(CheckpointError, match="do not fit"):
        adapted.load_adapter_state({**state, name: state[name][:, :1]})
    with pytest.raises(CheckpointError, match="do not fit"):
        adapted.load_adapter_state({**state, "stranger": torch.zeros(1)})


def test_removing_lora_gives_the_stock_model_back():
    model, plain = random_model(), random_model()
    batch = model.preprocessor(random_samples(2))
    model.add_lora(rank=4)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.1)
    assert not torch.equal(model(batch).logits, plain(batch).logits)
    model.remove_lora()
    assert torch.equal(model(batch).logits, plain(batch).logits)
    model.add_lora(rank=2)  # and it can be adapted again
    assert len(adapted_modules(model.llava, "default")) == 7 * NUM_LAYERS


def test_impossible_settings_are_refused(adapted):
    with pytest.raises(ConfigError, match="there is a LoRA named 'default' already"):
        adapted.add_lora()
    model = random_model()
    with pytest.raises(ConfigError, match="no LoRA"):
        model.adapter_state()
    for settings in ({"rank": 0}, {"dropout": 1.0}):
        with pytest.raises(ConfigError, match="LoRA of rank"):
            model.add_lora(**settings)
