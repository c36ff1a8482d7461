"""`ExtractionProbe` in a real fit: figures appear, training does not notice, silence is no privacy."""

import json

import lightning as L
import numpy as np
import pytest
import torch

from callbacks.probes.extraction import ExtractionProbe
from datamodules.fake_documents import FakeDocuments
from lightning_modules.document_vqa import DocumentVQAModule
from qpriv.attacks.extraction.asking import Extracted
from qpriv.errors import ConfigError, DataError
from qpriv.result import read_results

SMALL = {"num_base": 2, "num_canaries": {1: 3}, "num_eval": 2, "batch_size": 4}


def fit(folder, *probes, epochs=2, data=None, **settings):
    module = DocumentVQAModule(seed=1, **settings)
    trainer = L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=list(probes),
        num_sanity_val_steps=0,
    )
    data = data or FakeDocuments(**SMALL, seed=1)
    trainer.fit(module, data)
    return module, trainer


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.model.parameters()])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    with_probe = fit(folder, ExtractionProbe(audit_isolation=True, log_private=True))
    without = fit(tmp_path_factory.mktemp("plain"))
    return folder, with_probe, without


def test_training_does_not_notice(runs):
    _, (probed, _), (plain, _) = runs
    assert torch.equal(weights(probed), weights(plain))


def test_figures_of_every_epoch_are_in_the_results(runs):
    folder, (_, trainer), _ = runs
    results = read_results(folder / "results.jsonl")
    assert {result.epoch for result in results} == {0, 1}
    assert all(result.status in {"ok", "not applicable"} for result in results)
    by_name = {r.name: r for r in results if r.epoch == 1}
    canaries = len(FakeDocuments(**SMALL).canaries().canaries)
    assert 0 <= by_name["extraction/extractable"].value <= canaries
    assert by_name["extraction/extractable"].n == 3  # documents, not questions
    assert by_name["extraction/exposure"].unit == "bits"
    assert "extraction/near_verbatim" in trainer.callback_metrics


def test_the_first_epoch_of_every_canary_is_kept(tmp_path, monkeypatch):
    data = FakeDocuments(**SMALL, seed=1)
    keys = [canary.key for canary in data.canaries().canaries]
    said = {0: keys[:1], 1: keys[:2], 2: keys[1:4]}  # the first is forgotten again
    probe = ExtractionProbe(ranking=False)
    module = DocumentVQAModule(seed=1)
    module.configure_model()
    for epoch, extracted in said.items():
        flags = np.array([key in extracted for key in keys])
        answer = Extracted(flags, np.zeros(len(keys)))
        monkeypatch.setattr("callbacks.probes.extraction.extract", lambda *given, a=answer: a)
        results = {r.name: r.value for r in probe.run_once(module, data, tmp_path, epoch)}
    (path,) = tmp_path.rglob("first_epoch.json")
    assert json.loads(path.read_text()) == dict(zip(keys[:4], (0, 1, 2, 2), strict=True))
    assert json.loads(path.with_name("extracted.json").read_text()) == keys[1:4]
    assert results["extraction/first_epoch"] == 2  # of 1, 2 and 2
    # a training that starts anew in this folder does not inherit later epochs
    next(module.model.parameters()).data.add_(1e-6)
    probe.run_once(module, data, tmp_path, 1)
    assert set(json.loads(path.read_text()).values()) == {0, 1}


def test_answers_are_written_only_where_allowed(runs, tmp_path):
    folder, _, _ = runs
    assert list(folder.rglob("answers-epoch=1.json"))
    fit(tmp_path, ExtractionProbe(ranking=False), epochs=1)
    assert not list(tmp_path.rglob("answers*"))
    secrets = [c.answer for c in FakeDocuments(**SMALL).canaries().canaries if c.pii]
    written = "".join(p.read_text(errors="ignore") for p in tmp_path.rglob("*") if p.is_file())
    assert secrets and not any(secret in written for secret in secrets)


def test_what_a_run_without_canaries_says_too_is_not_memorised(tmp_path):
    data = FakeDocuments(**SMALL, seed=1)
    keys = [canary.key for canary in data.canaries().canaries]
    (tmp_path / "baseline.json").write_text(json.dumps(keys))
    fit(tmp_path, ExtractionProbe(baseline=tmp_path / "baseline.json", ranking=False), epochs=1)
    by_name = {r.name: r.value for r in read_results(tmp_path / "results.jsonl")}
    assert by_name["extraction/memorised"] == 0


def test_a_mute_model_is_a_failure_not_a_success(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "callbacks.probes.extraction.degenerate", lambda said: "the model says nothing"
    )
    fit(tmp_path, ExtractionProbe(), epochs=1)
    (result,) = read_results(tmp_path / "results.jsonl")
    assert (result.status, result.value) == ("failed", None)
    assert "says nothing" in result.note


def test_lora_trains_and_keeps_adapters_alone(tmp_path):
    module, trainer = fit(tmp_path, epochs=1, lora_rank=2)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]
    assert state and all("lora_" in name for name in state)
    module.export(tmp_path / "adapter")
    assert (tmp_path / "adapter/adapter_config.json").exists()


def test_validation_scores_are_logged(runs):
    _, (_, trainer), _ = runs
    assert 0 <= trainer.callback_metrics["val/anls/rrc"] <= 1
    assert trainer.callback_metrics["val/loss"] > 0


def test_wrong_modules_and_files_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no document model"):
        ExtractionProbe().require(L.LightningModule(), FakeDocuments(**SMALL))
    with pytest.raises(DataError, match="include_canaries: false"):
        ExtractionProbe(baseline=tmp_path / "none.json")
