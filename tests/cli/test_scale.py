"""Configurations of several devices are laid over a fit; what cannot be attacked there is refused."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import yaml
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy

from callbacks import SensitivityProbe
from cli.main import main
from cli.refusals import refuse_given
from cli.train import CONFIGS
from qpriv.errors import ConfigError
from qpriv.result import read_results

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
    module, probe = L.LightningModule(), SensitivityProbe()
    probe.setup(trainer, module, "fit")
    monkeypatch.setattr(module, "is_sharded", True, raising=False)
    with pytest.raises(ConfigError, match="gives none a whole model"):
        probe.setup(trainer, module, "validate")
    sharded = FSDPStrategy.__new__(FSDPStrategy)  # it wants GPUs to be made whole
    monkeypatch.setattr(type(trainer), "strategy", sharded)
    with pytest.raises(ConfigError, match="FSDPStrategy gives no process a whole model"):
        probe.setup(trainer, L.LightningModule(), "fit")


@pytest.mark.parametrize(
    "strategy",
    ["fsdp_cpu_offload", "deepspeed_stage_2", "lightning.FSDPStrategy", ModelParallelStrategy()],
)
def test_a_strategy_that_divides_what_is_trained_is_refused(strategy):
    with pytest.raises(ConfigError, match=r"divides what is trained.*--model\.shard true"):
        refuse_given(asked(strategy), "validate")


@pytest.mark.parametrize("strategy", ["ddp_notebook", "ddp_fork_find_unused_parameters_true"])
def test_a_strategy_that_copies_a_process_is_refused(strategy):
    with pytest.raises(ConfigError, match=f"{strategy} copies a process"):
        refuse_given(asked(strategy), "fit")
    for command in ("fit", "attack"):
        refuse_given(asked("ddp"), command)
    refuse_given(asked("ddp_spawn"), "fit")
    with pytest.raises(ConfigError, match="in processes that end"):
        refuse_given(asked("ddp_spawn"), "attack")


def asked(strategy: object) -> dict[str, Any]:
    return {"strategy": strategy, "barebones": False, "model_registry": None}


FIT = [
    "--config=tiny/vqa_off.yaml",
    "--trainer.accelerator=cpu",
    "--trainer.callbacks=[]",
    "--trainer.limit_train_batches=2",
    "--trainer.max_epochs=1",
    "--trainer.enable_progress_bar=false",
    "--model.feature_cache=null",
    "--model.rank=2",
    "--data.num_train=8",
    "--data.num_memorised=4",
    # 11 images with three questions each: an odd number, which processes must not round
    "--data.num_eval=11",
    "--data.questions_per_image=3",
    "--data.batch_size=2",
    # a batch of one, as sums depend on what else is in a batch, in the last bits
    "--data.eval_batch_size=1",
    "--run.wandb=off",
    "--run.tensorboard=false",
]


def start(run: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    """Type a fit of two steps of the embedded model on CPUs, and do not wait for it."""
    script = Path(sys.executable).with_name("qpriv")
    return subprocess.Popen(
        # the configuration of the fit comes first
        [script, "fit", FIT[0], *words, *FIT[1:], f"--trainer.default_root_dir={run}"],
        cwd=run.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finished(*processes: subprocess.Popen[str]) -> None:
    """Wait for processes; kill them and all they have started if one fails or hangs."""
    try:
        for process in processes:
            said, _ = process.communicate(timeout=600)
            assert process.returncode == 0, said[-3000:]
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def learned(run: Path) -> dict[str, torch.Tensor]:
    """Return what a run has learned in its two steps, which is whole."""
    stored = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert stored["global_step"] == 2
    weights: dict[str, torch.Tensor] = stored["state_dict"]
    assert all(type(value) is torch.Tensor for value in weights.values())
    moved = [value for name, value in weights.items() if "lora_B" in name]
    assert moved and all(bool(value.any()) for value in moved)
    return weights


def figures(run: Path) -> dict[str, tuple[float | None, int]]:
    return {each.name: (each.value, each.n) for each in read_results(run / "results.jsonl")}


def one_process_measures_the_same(run: Path) -> None:
    again = run.with_name("again")
    main(["validate", f"--config={run / 'config.yaml'}", "--trainer.devices=1",
          "--trainer.num_nodes=1", f"--ckpt_path={run / 'checkpoints' / 'last.ckpt'}",
          f"--trainer.default_root_dir={again}"])  # fmt: skip
    assert figures(again) == figures(run)


@pytest.mark.slow
def test_processes_that_share_the_decoder_learn_what_those_with_all_of_it_learn(tmp_path):
    types = ("--trainer.precision=bf16-true", "--model.dtype=bfloat16")
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    two, unmeasured = "--trainer.devices=2", "--trainer.limit_val_batches=0"
    finished(start(whole, "--config=scale/ddp.yaml", two, *types, unmeasured))
    finished(start(shared, "--config=scale/fsdp.yaml", two))
    one, other = learned(whole), learned(shared)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    one_process_measures_the_same(shared)


@pytest.mark.slow
def test_two_nodes_train_by_the_configuration_of_several_machines(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    run = tmp_path / "run"
    run.mkdir()  # as on a shared disk, where somebody has made it: both must take it
    words = ("--config=scale/multi_node.yaml", "--trainer.devices=1")
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    finished(*(start(run, *words, **where, NODE_RANK=str(node)) for node in (1, 0)))
    learned(run)
    one_process_measures_the_same(run)
