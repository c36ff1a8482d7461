"""Configurations of several devices are laid over a fit; what cannot be attacked there is refused."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import yaml
from lightning.pytorch.strategies import FSDPStrategy

from callbacks import SensitivityProbe
from cli.main import main
from cli.refusals import refuse_given
from cli.train import CONFIGS
from qpriv.errors import ConfigError
from tests.tiny_models import build_random_backbone

SCALE = sorted(path.stem for path in (CONFIGS / "scale").glob("*.yaml"))


@pytest.mark.parametrize("name", SCALE)
def test_the_configuration_is_laid_over_a_fit_and_round_trips(name, tmp_path, capsys):
    def printed(*configs: object) -> str:
        with pytest.raises(SystemExit) as leaving:
            main(["fit", *(f"--config={config}" for config in configs), "--print_config"])
        assert not leaving.value.code
        return capsys.readouterr().out

    whole = printed("tiny/vqa_off.yaml", f"scale/{name}.yaml")
    (tmp_path / "whole.yaml").write_text(whole)
    assert printed(tmp_path / "whole.yaml") == whole
    given = yaml.safe_load((CONFIGS / "scale" / f"{name}.yaml").read_text())["trainer"]
    read = yaml.safe_load(whole)
    assert read["model"]["init_args"]["learning_rate"] == 2e-3
    for key in given.keys() - {"strategy"}:
        assert read["trainer"][key] == given[key]


def test_a_probe_refuses_sharded_weights(monkeypatch):
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    sharded = FSDPStrategy.__new__(FSDPStrategy)  # it wants GPUs to be made whole
    monkeypatch.setattr(type(trainer), "strategy", sharded)
    with pytest.raises(ConfigError, match="FSDPStrategy gives no process a whole model"):
        SensitivityProbe().on_fit_start(trainer, L.LightningModule())


@pytest.mark.parametrize("strategy", ["ddp_notebook", "ddp_fork_find_unused_parameters_true"])
def test_a_strategy_that_copies_a_process_is_refused(strategy):
    with pytest.raises(ConfigError, match=f"{strategy} copies a process"):
        refuse_given(asked(strategy), "fit")
    for command in ("fit", "attack"):
        refuse_given(asked("ddp"), command)
    refuse_given(asked("ddp_spawn"), "fit")
    with pytest.raises(ConfigError, match="in processes that end"):
        refuse_given(asked("ddp_spawn"), "attack")


def asked(strategy: str) -> dict[str, Any]:
    return {"strategy": strategy, "barebones": False, "model_registry": None}


def steps(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Type a fit of two steps on CPUs, on a random backbone, and do not wait for it."""
    command = [
        Path(sys.executable).with_name("qpriv"),
        "fit",
        "--config=tiny/vqa_off.yaml",
        *words,
        "--trainer.accelerator=cpu",
        "--trainer.callbacks=[]",
        "--trainer.limit_train_batches=2",
        "--trainer.limit_val_batches=0",
        "--trainer.max_epochs=1",
        "--trainer.enable_progress_bar=false",
        f"--model.backbone={folder / 'backbone'}",
        "--model.feature_cache=null",
        "--model.rank=2",
        "--data.num_train=8",
        "--data.num_memorised=4",
        "--data.num_eval=4",
        "--data.batch_size=2",
        "--run.wandb=off",
        "--run.tensorboard=false",
    ]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(*processes: subprocess.Popen[str]) -> None:
    try:
        for process in processes:
            said, _ = process.communicate(timeout=300)
            assert process.returncode == 0, said[-3000:]
    finally:
        for process in processes:
            process.kill()


def learned(run: Path) -> None:
    """Check that a run took its two steps, and that what it learned is whole."""
    stored = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert stored["global_step"] == 2
    moved = [value for name, value in stored["state_dict"].items() if "lora_B" in name]
    assert len(moved) == 7 * 8 and all(bool(value.any()) for value in moved)


@pytest.mark.slow
def test_two_processes_train_by_the_configuration_of_ddp(tmp_path):
    build_random_backbone(tmp_path / "backbone")
    words = ("--config=scale/ddp.yaml", "--trainer.devices=2")
    finished(steps(tmp_path, *words, f"--trainer.default_root_dir={tmp_path / 'run'}"))
    learned(tmp_path / "run")
