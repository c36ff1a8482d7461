import json

import lightning as L
import pytest
import torch

from callbacks.runtime.step_seed import StepSeed
from datamodules import FaceBags
from lightning_modules import PruningStudent, SensitivityTeacher, ThresholdTeacher
from qpriv.errors import CheckpointError, ConfigError
from qpriv.models.encoder_record import read_encoders
from qpriv.models.registry import resolve_backbone
from qpriv.pruning.oracle import OracleSearch
from qpriv.pruning.oracle_table import OracleTable
from qpriv.pruning.predictor import DynamicThresholdPredictor
from qpriv.result import read_results
from tests.tiny_data import Noise
from tests.tiny_models import random_backbone


def fit(folder, module, data, epochs=2):
    folder.mkdir(exist_ok=True)
    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[StepSeed(0)],
        default_root_dir=folder,
        max_epochs=epochs,
    )
    trainer.fit(module, datamodule=data)
    module.export(folder)
    return trainer


def bags():
    return FaceBags(num_train=32, num_eval=16, batch_size=8)


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """The three stages, each with its exported predictor."""
    root = tmp_path_factory.mktemp("chain")
    common = {"backbone": str(random_backbone()), "feature_cache": str(root / "features")}
    teacher = SensitivityTeacher(**common, learning_rate=1e-2)
    fit(root / "sensitivity", teacher, bags(), epochs=4)
    threshold = ThresholdTeacher(str(root / "sensitivity/predictor"), **common, oracle_mode="max")
    fit(root / "threshold", threshold, Noise(seed=3))
    student = PruningStudent(str(root / "threshold/predictor"), **common, oracle_mode="max")
    fit(root / "student", student, Noise(seed=3))
    return root, common


def predictor(folder):
    return DynamicThresholdPredictor.from_pretrained(folder / "predictor")


def test_every_stage_records_the_encoders_it_was_trained_on(chain):
    root, common = chain
    encoders, _ = read_encoders(resolve_backbone(common["backbone"]))
    for stage in ("sensitivity", "threshold", "student"):
        assert predictor(root / stage).encoders == encoders


def changed(one, other) -> set[str]:
    pairs = zip(one.named_parameters(), other.parameters(), strict=True)
    return {name.split(".")[0] for (name, a), b in pairs if not torch.equal(a, b)}


def test_each_stage_trains_its_own_part(chain):
    root, _ = chain
    stages = [predictor(root / name) for name in ("sensitivity", "threshold", "student")]
    assert changed(stages[0], stages[1]) == {"ratio_predictor"}
    everything = {"utility_scorer", "sensitivity_head", "ratio_predictor", "gamma"}
    assert changed(stages[1], stages[2]) == everything


def test_the_teacher_learns_to_tell_bags_apart(tmp_path):
    teacher = SensitivityTeacher(feature_cache=None, pooling="top_k", learning_rate=3e-3)
    data = FaceBags(num_train=600, num_eval=200, batch_size=32)
    trainer = fit(tmp_path / "run", teacher, data, epochs=8)
    assert float(trainer.callback_metrics["val/auc"]) > 0.85


def test_pooling_is_a_choice_that_matters(chain, tmp_path):
    _, common = chain
    losses = set()
    for pooling in ("mean", "top_k", "lse"):
        trainer = fit(tmp_path / pooling, SensitivityTeacher(pooling=pooling, **common), bags(), 1)
        losses.add(round(float(trainer.callback_metrics["train/loss"]), 6))
    assert len(losses) == 3


def test_the_oracle_is_written_down_and_found_again(chain, tmp_path, monkeypatch):
    root, common = chain
    table = OracleTable.load(root / "threshold" / "oracle.json")
    splits = {key.split("/")[1] for key in table.ratios}
    assert (len(table.ratios), splits, table.mode) == (22, {"train", "val"}, "max")
    assert set(table.ratios.values()) <= {0.0, *table.grid}
    monkeypatch.setattr("qpriv.pruning.oracle.OracleSearch.search_batch", None)
    again = ThresholdTeacher(str(root / "sensitivity/predictor"), **common, oracle_mode="max")
    fit(tmp_path / "again", again, Noise(seed=3))
    assert (tmp_path / "again/oracle.json").read_text() == (
        root / "threshold/oracle.json"
    ).read_text()
    assert changed(predictor(tmp_path / "again"), predictor(root / "threshold")) == set()


class FewSearched(Noise):
    """Offers three samples of each split to the oracle search."""

    def oracle_samples(self, split):
        return self.samples(split)[:3]


@pytest.mark.parametrize(
    ("kind", "stage"), [(ThresholdTeacher, "sensitivity"), (PruningStudent, "threshold")]
)
def test_the_oracle_is_asked_only_about_what_it_is_offered(
    chain, tmp_path, monkeypatch, kind, stage
):
    root, common = chain
    asked, search = set(), OracleSearch.search_batch

    def spy(self, batch, *args):
        asked.update(sample.key for sample in batch.samples)
        return search(self, batch, *args)

    monkeypatch.setattr(OracleSearch, "search_batch", spy)
    settings = common | {"feature_cache": str(tmp_path / "features")}
    trainer = fit(
        tmp_path / "run", kind(str(root / stage / "predictor"), **settings), FewSearched()
    )
    data = trainer.datamodule
    offered = {s.key for split in ("train", "val") for s in data.oracle_samples(split)}
    assert asked == offered == set(OracleTable.load(tmp_path / "run/oracle.json").ratios)
    assert torch.isfinite(trainer.callback_metrics["train/loss"])
    results = {result.name: result for result in read_results(tmp_path / "run/results.jsonl")}
    assert results["val/ratio_mse"].n == 3


def test_how_well_ratios_are_predicted_is_a_result(chain):
    root, _ = chain
    results = {result.name: result for result in read_results(root / "student" / "results.jsonl")}
    assert {"val/ratio_mse", "val/ratio_r2", "val/ratio_spearman", "val/ratio_mean"} <= set(results)
    assert 0 < results["val/ratio_mean"].value < 1
    assert results["val/ratio_mse"].n == 11


def test_both_readings_of_the_mask_target_are_trained_towards(chain, tmp_path):
    root, common = chain
    settings = common | {"oracle_mode": "max", "seed": 1}
    source = str(root / "threshold/predictor")
    for target in ("random", "grounded"):
        student = PruningStudent(source, mask_target=target, **settings)
        fit(tmp_path / target, student, Noise(seed=3), epochs=1)
    made = [predictor(tmp_path / target) for target in ("random", "grounded")]
    assert "utility_scorer" in changed(*made)
    config = json.loads((tmp_path / "random/predictor/config.json").read_text())
    assert config["gamma"] == 3.0


def test_a_missing_stage_is_an_error_before_anything_loads():
    with pytest.raises(ConfigError, match="run the sensitivity teacher stage first"):
        ThresholdTeacher("runs/gone/predictor", backbone=str(random_backbone()))


def test_a_checkpoint_of_another_teacher_is_refused(chain, tmp_path):
    root, common = chain
    settings = common | {"oracle_mode": "max"}
    threshold = ThresholdTeacher(str(root / "sensitivity/predictor"), **settings)
    fit(tmp_path / "a", threshold, Noise(seed=3), 1).save_checkpoint(tmp_path / "a.ckpt")
    other = ThresholdTeacher(str(root / "student/predictor"), **settings)
    trainer = L.Trainer(accelerator="cpu", logger=False, default_root_dir=tmp_path, max_epochs=2)
    with pytest.raises(CheckpointError, match="predictor of the stage before"):
        trainer.fit(other, datamodule=Noise(seed=3), ckpt_path=tmp_path / "a.ckpt")
