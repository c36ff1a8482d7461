import lightning as L
import pytest
import torch
from transformers import CLIPTextConfig

from callbacks.runtime.checkpoint_io import AtomicCheckpointIO
from callbacks.runtime.step_seed import StepSeed
from lightning_modules import VQAModule
from qpriv.errors import CheckpointError, ConfigError, ModelError
from qpriv.paradigms.centralized import fine_tune
from qpriv.pruning.baselines import RandomPruning
from qpriv.result import read_results
from tests.tiny_data import Noise
from tests.tiny_models import random_backbone
from tests.toy_policies import ClassAttention


def module(folder, **settings) -> VQAModule:
    values = {"rank": 4, "alpha": 8.0, "dropout": 0.2, "learning_rate": 1e-2, "seed": 3}
    return VQAModule(
        backbone=str(random_backbone()), feature_cache=str(folder / "features"), **values | settings
    )


def trainer(folder, *callbacks, **settings) -> L.Trainer:
    return L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[*callbacks, StepSeed(3)],
        default_root_dir=folder,
        plugins=[AtomicCheckpointIO()],
        **settings,
    )


def fit(folder, *callbacks, ckpt_path=None, model=None, **settings) -> VQAModule:
    model = model or module(folder)
    trainer(folder, *callbacks, **{"max_epochs": 2} | settings).fit(
        model, datamodule=Noise(seed=3), ckpt_path=ckpt_path
    )
    return model


def equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


class Careless(L.Callback):
    """Draws random numbers at every opportunity, as a careless attack would."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        torch.manual_seed(99)
        torch.rand(5)

    def on_validation_epoch_end(self, trainer, pl_module):
        torch.nn.Linear(3, 3)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    return fit(folder), folder


def test_random_draws_of_callbacks_do_not_change_the_training(fitted, tmp_path):
    careless = fit(tmp_path, Careless())
    assert equal(careless.model.adapter_state(), fitted[0].model.adapter_state())


def test_a_shadow_model_is_trained_exactly_as_the_victim(fitted):
    victim, _ = fitted
    before = victim.model.adapter_state()
    members, steps = Noise(seed=3).members(), []
    torch.manual_seed(5)
    shadow = fine_tune(
        victim.model, members, victim.policy, victim.recipe, 3, steps.append, victim.encode
    )
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))
    assert steps == list(range(victim.trainer.global_step + 1))
    assert equal(shadow, before)
    assert equal(victim.model.adapter_state(), before)
    other = fine_tune(victim.model, members, victim.policy, victim.recipe, 4)
    assert not equal(other, before)


@pytest.mark.parametrize("settings", [{"max_steps": 3}, {"max_epochs": -1, "max_steps": 3}])
def test_a_shadow_model_ends_and_slows_down_where_the_victim_does(settings, tmp_path):
    victim = fit(tmp_path, **settings)
    assert victim.trainer.global_step == 3
    assert victim.recipe.epochs == 3 / len(victim.trainer.train_dataloader)
    members = Noise(seed=3).members()
    shadow = fine_tune(victim.model, members, victim.policy, victim.recipe, 3, encode=victim.encode)
    assert equal(shadow, victim.model.adapter_state())


def test_a_fit_without_a_planned_end_has_a_constant_rate(tmp_path):
    endless = {"max_epochs": -1, "max_time": {"seconds": 3600}}
    with pytest.raises(ConfigError, match="schedule cosine needs to know"):
        fit(tmp_path, **endless)
    with pytest.raises(ConfigError, match="warm-up of 3% needs to know"):
        fit(tmp_path, model=module(tmp_path, schedule="constant"), **endless)

    class Stop(L.Callback):
        def on_train_batch_end(self, trainer, *_):
            trainer.should_stop = trainer.global_step == 3

    model = module(tmp_path, schedule="constant", warmup=0.0)
    victim = fit(tmp_path, Stop(), model=model, **endless)
    assert victim.recipe.epochs == float("inf")
    members = Noise(seed=3).members()
    shadow = fine_tune(
        victim.model, members, victim.policy, victim.recipe, 3, None, victim.encode, steps=3
    )
    assert equal(shadow, victim.model.adapter_state())


def test_micro_batches_give_the_gradient_of_the_whole_batch(fitted, tmp_path):
    whole = fit(tmp_path, model=module(tmp_path, dropout=0.0), max_steps=1).model.adapter_state()
    parts = fit(
        tmp_path, model=module(tmp_path, dropout=0.0, micro_batch_size=3), max_steps=1
    ).model.adapter_state()
    for name in whole:
        torch.testing.assert_close(parts[name], whole[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("step", [2, 3, 4])
def test_a_resumed_run_ends_as_the_uninterrupted_one(fitted, tmp_path, step):
    class Stop(L.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == step:
                trainer.save_checkpoint(tmp_path / "stopped.ckpt")
                raise KeyboardInterrupt

    with pytest.raises(SystemExit):
        fit(tmp_path, Stop())
    resumed = fit(tmp_path, ckpt_path=tmp_path / "stopped.ckpt")
    assert equal(resumed.model.adapter_state(), fitted[0].model.adapter_state())


def test_checkpoint_holds_only_what_was_trained(fitted, tmp_path):
    victim, folder = fitted
    path = tmp_path / "a.ckpt"
    run = trainer(folder, max_epochs=1)
    run.fit(victim, datamodule=Noise(seed=3))
    run.save_checkpoint(path)
    stored = torch.load(path, weights_only=True)
    assert len(stored["state_dict"]) == 8 * 7 * 2
    assert all(".lora_" in name for name in stored["state_dict"])

    fresh = module(folder, seed=8)
    metrics = trainer(folder).validate(fresh, Noise(seed=3), ckpt_path=path, verbose=False)
    assert equal(fresh.model.adapter_state(), victim.model.adapter_state())
    assert 0 <= metrics[0]["val/accuracy"] <= 1
    settings = {"backbone": str(random_backbone()), "rank": 4, "alpha": 8.0}
    alone = VQAModule.load_from_checkpoint(path, weights_only=True, **settings)
    assert equal(alone.model.adapter_state(), victim.model.adapter_state())

    with pytest.raises(CheckpointError, match="misshapes 112 trained weights"):
        trainer(folder).validate(module(folder, rank=2), Noise(seed=3), ckpt_path=path)
    stored["state_dict"].popitem()
    torch.save(stored, path)
    with pytest.raises(CheckpointError, match="misses 1 trained weights of 112"):
        trainer(folder).validate(module(folder), Noise(seed=3), ckpt_path=path)
    stored["qpriv_base"]["backbone"] = "0000"
    torch.save(stored, path)
    with pytest.raises(CheckpointError, match="trained on backbone 0000"):
        trainer(folder).validate(module(folder), Noise(seed=3), ckpt_path=path)


def test_results_name_the_policy_and_the_question_types(tmp_path):
    model = module(tmp_path, policy=RandomPruning(0.5))
    trainer(tmp_path).validate(model, Noise(seed=3), verbose=False)
    results = {result.name: result for result in read_results(tmp_path / "results.jsonl")}
    assert {"accuracy", "accuracy/how", "accuracy/is", "accuracy/what", "val/loss"} < set(results)
    assert results["kept_tokens"].value == 32
    assert results["accuracy"].n == 11
    assert {result.policy for result in results.values()} == {model.policy.label}


def test_predictions_carry_the_samples_names(tmp_path):
    trainer(tmp_path).predict(module(tmp_path), Noise(seed=3))
    lines = (tmp_path / "predictions.jsonl").read_text().splitlines()
    assert len(lines) == 11
    assert '"key":"Random/test/0"' in lines[0]


class Wishful(ClassAttention):
    needs = frozenset({"a crystal ball"})


class Embedded(ClassAttention):
    needs = frozenset({"text_embeds"})


def test_what_a_policy_needs_is_encoded_in_every_stage_and_stored(tmp_path):
    fit(tmp_path, model=module(tmp_path, policy=ClassAttention(0.75)), max_epochs=1)
    results = read_results(tmp_path / "results.jsonl")
    assert {r.value for r in results if r.name == "kept_tokens"} == {16.0}
    stored = {path.parent.name for path in (tmp_path / "features").glob("*/*/*")}
    assert stored == {"image", "question", "sensitivity", "cls_attention"}


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"cuts": (8,)}, ConfigError, "cut 8 is beyond the decoder's 8 layers"),
        ({"cuts": (4, 2)}, ConfigError, r"cuts are \[4, 2\]"),
        ({"rank": 0}, ConfigError, "rank is 0"),
        ({"policy": RandomPruning(0.5, k_min=65)}, ConfigError, "k_min is 65 with 64 patches"),
        ({"policy": Wishful()}, ConfigError, "class_attention\\(0.5\\) needs a crystal ball"),
        ({"backbone": "/nowhere/llava"}, ModelError, "nowhere"),
    ],
)
def test_impossible_settings_are_refused_before_weights_load(settings, error, message):
    with pytest.raises(error, match=message):
        VQAModule(**{"backbone": str(random_backbone())} | settings)


def test_a_text_tower_without_projections_is_refused_before_weights_load(tmp_path):
    CLIPTextConfig().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="no projections"):
        module(tmp_path, policy=Embedded(), text_encoder=str(tmp_path))
