"""The full-scale study as shipped, on folders of the names it says: random weights, fake releases.

Nothing of its configurations is replaced but the device and the length of a fit.
"""

from pathlib import Path

import pytest
import torch
import yaml

from cli import train
from cli.main import main
from cli.study import cells, read_study, run_study
from cli.train import CONFIGS
from qpriv.datasets.dpriv.eurosat import CLASSES
from qpriv.models.registry import SENSITIVITY_ENCODER, TEXT_ENCODER
from qpriv.result import read_results
from tests.data.celeba import data as celeba
from tests.data.cifar10 import data as cifar10
from tests.data.eurosat import data as eurosat
from tests.data.gqa import data as gqa
from tests.data.mnist import data as mnist
from tests.data.nih import data as nih
from tests.data.okvqa import data as okvqa
from tests.data.path_vqa import data as path_vqa
from tests.data.slake import data as slake
from tests.data.vqa_rad import data as vqa_rad
from tests.data.vqav2 import data as vqav2
from tests.tiny_models import random_backbone

PAPER = CONFIGS / "paper"
STUDY = PAPER / "study.yaml"
LLAVA = "llava-hf/llava-1.5-7b-hf"
SETS = {"gqa": gqa, "okvqa": okvqa, "vqav2": vqav2, "slake": slake, "vqa_rad": vqa_rad}
SETS |= {"path_vqa": path_vqa, "celeba": celeba, "nih": nih, "mnist": mnist, "cifar10": cifar10}
SHORT = [
    "--trainer.accelerator=cpu",
    "--trainer.max_epochs=1",
    "--trainer.limit_train_batches=1",
    "--trainer.limit_val_batches=1",
    "--trainer.enable_progress_bar=false",
    "--run.wandb=off",
    "--run.tensorboard=false",
    "--run.csv=false",
]


def fit(arguments: list[str]) -> None:
    """Run a fit of the study on a CPU, with fakes of as little as one training image: for one client."""
    few = ["--data.val_fraction=0.5"] if any("--data=" in word for word in arguments) else []
    several = any(word.startswith("--model.paradigm.num_clients") for word in arguments)
    few += ["--model.paradigm.num_clients=1"] if several else []
    train.run([*arguments, *SHORT, *few])


@pytest.fixture
def models(tmp_path, monkeypatch) -> Path:
    """A folder to stand in, with checkpoints of the names that the configurations say."""
    for part, name in zip(
        ("llava", "clip", "dino"), (LLAVA, TEXT_ENCODER, SENSITIVITY_ENCODER), strict=True
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(random_backbone() / part)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def releases(models) -> Path:
    for name, fake in SETS.items():
        (models / "data" / name).mkdir(parents=True)
        fake.write_release(models / "data" / name)
    eurosat.write_release(models / "data" / "eurosat", CLASSES)
    return models


def settings(name: str) -> dict:
    return yaml.safe_load((PAPER / f"{name}.yaml").read_text())


@pytest.mark.parametrize(
    ("name", "epochs"),
    [("sensitivity_teacher", 10), ("threshold_teacher", 20), ("student", 20), ("vqa", 10)],
)
def test_the_hyper_parameters_are_the_sources(name, epochs):
    read = settings(name)
    model, data = (read[part]["init_args"] for part in ("model", "data"))
    assert model["backbone"] == LLAVA
    assert model["learning_rate"] == 3e-4
    assert (data["batch_size"], data["cap"]) == (128, 3000)
    assert read["trainer"]["max_epochs"] == epochs
    assert model.get("rank", 32) == 32 and data.get("oracle_cap", 500) == 500


def test_the_study_is_a_chain_and_six_sets_under_four_paradigms():
    study = read_study(STUDY)
    grid = cells(study, PAPER, Path("out"))
    assert len(grid) == 3 + 6 * (2 * 4 + 4)
    assert sum(cell.minutes for cell in grid) <= study.budget_minutes
    paradigms = {"Centralized", "Federated", "SplitLearning", "UShapedSplit"}
    for stage in study.stages[3:]:
        words = [o for c in grid if c.stage == stage.name for o in c.overrides]
        given = {word.partition("=")[2] for word in words if "--model.paradigm=" in word}
        assert given == paradigms and words.count("--model.policy=NoPruning") == 4
        assert words.count("--model.policy=DynamicPruning") == 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_study_forecasts_and_refuses(models, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["study", "--config=paper/study.yaml", "--out=out"])
    said = capsys.readouterr().out
    assert leaving.value.code == 1
    assert "Study paper: 75 runs" in said and "sensitivity-teacher" in said
    assert "failed: sensitivity-teacher-seed0: ConfigError: " in said and "gpu" in said.lower()
    assert "0 of 75 runs are done." in said


def test_without_data_it_says_which_folder_is_missing(models, capsys):
    outcome = run_study(STUDY, Path("out"), fit)
    assert list(outcome.failed) == ["sensitivity-teacher-seed0"]
    assert "data/celeba" in outcome.failed["sensitivity-teacher-seed0"]
    assert len(outcome.blocked) == 74 and not outcome.done


@pytest.mark.slow
def test_the_chain_and_every_set_policy_and_paradigm_are_fit(releases):
    """Two of the twelve variants on each of the six sets: all of them are fit once."""
    shipped = yaml.safe_load(STUDY.read_text())
    chain, sets = shipped["stages"][:3], shipped["stages"][3:]
    for number, stage in enumerate(sets):
        stage["variants"] = stage["variants"][number :: len(sets)]
    for stage in (*chain, *sets):
        stage["config"] = str(PAPER / stage["config"])
    part = Path("part.yaml")
    part.write_text(yaml.safe_dump(shipped))
    outcome = run_study(part, Path("out"), fit)
    assert not outcome.failed and not outcome.blocked and len(outcome.done) == 3 + 12
    seen = set()
    for cell in cells(read_study(part), Path(), Path("out")):
        results = read_results(cell.folder / "results.jsonl")
        accuracy = [result for result in results if result.name == "accuracy"]
        seen |= {(result.dataset, result.policy, result.paradigm) for result in accuracy}
        exported = "adapter" if accuracy else "predictor"
        assert list((cell.folder / exported).rglob("*.safetensors"))
    policies = {"off", "dtp(fused)", *(f"fixed({r},fused)" for r in (0.3, 0.5, 0.7, 0.9))}
    paradigms = {"centralized", "federated", "split", "u_shaped"}
    assert len({dataset for dataset, *_ in seen}) == 6
    assert {(policy, paradigm) for _, policy, paradigm in seen} == (
        {(policy, "centralized") for policy in policies}
        | {(policy, paradigm) for policy in ("off", "dtp(fused)") for paradigm in paradigms}
    )
