import lightning as L
import pytest
import torch

from lightning_modules import VQAModule
from qpriv.errors import CheckpointError, ConfigError
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms import Federated, SplitLearning, UShapedSplit
from qpriv.result import read_results
from tests.lightning_modules.test_vqa import equal, fit, module, trainer
from tests.qpriv.paradigms.runs import by_base_name
from tests.tiny_data import Noise


def weights(model: VQAModule) -> dict[str, torch.Tensor]:
    return by_base_name({n: p.detach().clone() for n, p in model.trained().items()})


@pytest.fixture(scope="module")
def centralized(tmp_path_factory):
    return weights(fit(tmp_path_factory.mktemp("fitted")))


def test_one_client_of_a_u_shaped_fit_equals_the_centralised_fit(centralized, tmp_path):
    fitted = fit(tmp_path, model=module(tmp_path, paradigm=UShapedSplit((2, 6))))
    assert fitted.cuts == (2, 6)
    assert equal(weights(fitted), centralized)
    results = {result.name: result for result in read_results(tmp_path / "results.jsonl")}
    assert {result.paradigm for result in results.values()} == {"u_shaped"}
    kinds = {n: int(r.value) for n, r in results.items() if n.startswith("bytes/")}
    assert kinds["bytes/activation/up"] == kinds["bytes/gradient/down"] > 0
    assert not any("labels" in name for name in kinds)
    up = sum(size for name, size in kinds.items() if name.endswith("/up"))
    assert results["bytes_up"].value == pytest.approx(up / 11)  # an epoch has 11 samples
    assert results["bytes_epoch"].value == sum(kinds.values())


def test_clients_of_a_fit_are_reported_one_by_one(tmp_path):
    paradigm = SplitLearning(num_clients=2, client_adapters="private", codec="int8")
    logged: set[str] = set()

    class Watch(L.Callback):
        def on_train_batch_end(self, trainer, *_):
            logged.update(trainer.callback_metrics)

    fitted = fit(tmp_path, Watch(), model=module(tmp_path, paradigm=paradigm), max_epochs=1)
    names = {result.name for result in read_results(tmp_path / "results.jsonl")}
    assert {"client0/accuracy", "client1/accuracy", "codec_error/activation"} <= names
    assert {"train/client0/loss", "train/client1/loss"} <= logged
    assert sum(fitted.paradigm.shards.sizes(Noise(seed=3).members())) == 11


def test_a_federated_fit_stopped_within_a_round_ends_as_the_uninterrupted_one(tmp_path):
    def federated() -> VQAModule:
        return module(tmp_path, paradigm=Federated(num_clients=2, local_steps=2))

    class Stop(L.Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if trainer.current_epoch == 1 and batch_idx == 0:
                trainer.save_checkpoint(tmp_path / "stopped.ckpt")
                raise KeyboardInterrupt

    whole = fit(tmp_path, model=federated())
    # three batches an epoch: a round of two, and one that the epoch's end closes
    assert whole.paradigm.round == whole.trainer.global_step == 4
    with pytest.raises(SystemExit):
        fit(tmp_path, Stop(), model=federated())
    resumed = fit(tmp_path, model=federated(), ckpt_path=tmp_path / "stopped.ckpt")
    assert equal(weights(resumed), weights(whole))
    names = {result.name for result in read_results(tmp_path / "results.jsonl")}
    assert {"bytes/adapter/up", "bytes/adapter/down", "client0/accuracy"} <= names


def test_a_checkpoint_of_another_paradigm_is_refused(tmp_path):
    fitted = fit(tmp_path, max_steps=1)
    fitted.trainer.save_checkpoint(tmp_path / "one.ckpt")
    with pytest.raises(CheckpointError, match="trained as centralized, this is split"):
        fit(
            tmp_path,
            model=module(tmp_path, paradigm=SplitLearning()),
            ckpt_path=tmp_path / "one.ckpt",
        )


def test_impossible_paradigms_are_refused_before_weights_load(tmp_path, monkeypatch):
    def load(*args, **settings):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(VisionLanguageModel, "from_pretrained", load)
    with pytest.raises(ConfigError, match=r"cuts are \[2, 8\]"):
        module(tmp_path, paradigm=UShapedSplit((2, 8)))
    with pytest.raises(ConfigError, match="those of the paradigm"):
        module(tmp_path, paradigm=SplitLearning(), cuts=(3,))
    crowded = module(tmp_path, paradigm=Federated(num_clients=12))
    with pytest.raises(ConfigError, match="12 clients share 11 images"):
        trainer(tmp_path, max_epochs=1).fit(crowded, datamodule=Noise(seed=3))
