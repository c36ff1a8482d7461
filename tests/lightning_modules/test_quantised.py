"""Adapters on a quantised base: one value of the configuration, and all else as on a whole one."""

import lightning as L
import pytest
import torch

from lightning_modules import VQAModule
from qpriv.errors import CheckpointError, ConfigError
from qpriv.models.llava.quantization import quantised_layers
from qpriv.paradigms.adapter import loading_lines
from tests.lightning_modules.test_vqa import equal, fit, module, trainer
from tests.tiny_data import Noise
from tests.tiny_models import NUM_LAYERS, random_samples

# of rank 64 on 64 wide layers an adapter matrix has the 4096 values from which moments take 8 bits
SETTINGS = {"rank": 64, "optimizer": "adamw8bit"}
FORMATS = ["nf4", pytest.param("int8", marks=pytest.mark.slow)]


class Before(L.Callback):
    """Remembers every weight there is when training starts."""

    def on_train_start(self, trainer, pl_module):
        self.weights = {n: p.detach().clone() for n, p in pl_module.named_parameters()}


@pytest.fixture(scope="module", params=FORMATS)
def fitted(request, tmp_path_factory) -> tuple[VQAModule, Before]:
    folder, before = tmp_path_factory.mktemp(request.param), Before()
    model = module(folder, quantization=request.param, **SETTINGS)
    return fit(folder, before, model=model, max_epochs=1), before


def test_only_the_decoder_is_quantised_and_only_adapters_learn(fitted):
    model, before = fitted
    layers = quantised_layers(model.model)
    assert len(layers) == 7 * NUM_LAYERS
    assert all(".language_model.layers." in name for name in layers)
    assert not quantised_layers(model.model.vision_tower)
    assert not quantised_layers(model.model.projector)
    now = dict(model.named_parameters())
    changed = {name for name, was in before.weights.items() if not torch.equal(was, now[name])}
    assert changed == set(model.trained())
    assert len(changed) == 2 * 7 * NUM_LAYERS and all(".lora_" in name for name in changed)


def test_moments_take_eight_bits(fitted):
    (optimizer,) = fitted[0].trainer.optimizers
    (kinds,) = {(s["state1"].dtype, s["state2"].dtype) for s in optimizer.state.values()}
    assert kinds == (torch.uint8, torch.uint8)


def test_the_export_loads_without_qpriv_and_answers_alike(fitted, tmp_path):
    model, _ = fitted
    model.export(tmp_path)
    lines = loading_lines(
        model.model.backbone.llava,
        ["default"],
        tmp_path / "adapter",
        "float32",
        model.hparams.quantization,
    )
    loaded: dict = {}
    exec("\n".join(lines), loaded)
    for layer in quantised_layers(loaded["model"]).values():
        layer.support_avx512bf16_for_cpu = False  # or evaluation would round anew
    batch = model.model.preprocessor(random_samples(2))
    inputs = {n: getattr(batch, n) for n in ("input_ids", "attention_mask", "pixel_values")}
    model.model.eval()
    with torch.no_grad():
        assert torch.equal(loaded["model"].eval()(**inputs).logits, model.model(batch).logits)


def test_a_checkpoint_fits_the_same_format_alone(fitted, tmp_path):
    model, _ = fitted
    model.trainer.save_checkpoint(tmp_path / "a.ckpt")
    stored = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert stored["state_dict"].keys() == model.trained().keys()
    kind = model.hparams.quantization
    again = module(tmp_path, quantization=kind, **SETTINGS, seed=9)
    trainer(tmp_path).validate(again, Noise(seed=3), ckpt_path=tmp_path / "a.ckpt", verbose=False)
    assert equal(again.model.adapter_state(), model.model.adapter_state())
    whole = module(tmp_path, **SETTINGS)
    with pytest.raises(CheckpointError, match=f"trained on backbone .* in {kind}, this is"):
        trainer(tmp_path).validate(whole, Noise(seed=3), ckpt_path=tmp_path / "a.ckpt")


def test_nothing_is_merged_into_rounded_weights(fitted):
    with pytest.raises(ConfigError, match="without being rounded again"):
        fitted[0].model.merge_lora()


def test_paged_moments_need_a_gpu_and_this_is_said_before_weights_load(tmp_path, monkeypatch):
    model = module(tmp_path, optimizer="paged_adamw8bit")
    monkeypatch.setattr(model, "configure_model", lambda: pytest.fail("weights were loaded"))
    with pytest.raises(ConfigError, match="this run is on cpu"):
        fit(tmp_path, model=model)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_a_resumed_run_ends_as_the_uninterrupted_one_though_it_evaluated_between(kind, tmp_path):
    class Stop(L.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 4:
                trainer.save_checkpoint(tmp_path / "stopped.ckpt")
                raise KeyboardInterrupt

    settings = {"quantization": kind, **SETTINGS}
    whole = fit(tmp_path, model=module(tmp_path, **settings))
    with pytest.raises(SystemExit):
        fit(tmp_path, Stop(), model=module(tmp_path, **settings))
    again = module(tmp_path, **settings)
    resumed = fit(tmp_path, model=again, ckpt_path=tmp_path / "stopped.ckpt")
    assert equal(resumed.model.adapter_state(), whole.model.adapter_state())
