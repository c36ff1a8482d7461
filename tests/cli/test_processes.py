"""`qpriv fit` on two processes measures what one process measures, and one goes on from its files."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from callbacks.runtime.checkpoint_io import AtomicCheckpointIO
from qpriv.result import Result, read_results
from tests.tiny_models import build_random_backbone

SETTINGS = [
    "--config=tiny/vqa_off.yaml",
    "--config=probes.yaml",
    "--model.backbone=backbone",
    "--model.feature_cache=features",
    "--model.rank=2",
    "--model.max_new_tokens=2",
    "--data.num_train=8",
    "--data.num_memorised=2",
    # 11 images with three questions each: an odd number, which ranks must not round
    "--data.num_eval=11",
    "--data.questions_per_image=3",
    # a batch of one, as sums depend on what else is in a batch, in the last bits
    "--data.eval_batch_size=1",
    "--data.num_auxiliary=6",
    "--data.num_targets=3",
    "--trainer.max_epochs=1",
    "--trainer.enable_progress_bar=false",
    "--run.wandb=off",
]
PROBES = """
trainer:
  callbacks:
    - class_path: SensitivityProbe
      init_args: {max_samples: 3}
    - class_path: MembershipProbe
      init_args: {max_samples: 18, shadows: 2}
"""
TIMEOUT = 900


def qpriv(folder: Path, *words: str) -> str:
    """Type a command in a folder; return what it prints."""
    script = Path(sys.executable).with_name("qpriv")
    done = subprocess.run(
        [script, *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=TIMEOUT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def figures(run: Path) -> list[tuple[Any, ...]]:
    """Return the figures of a run, in any order."""
    results: list[Result] = read_results(run / "results.jsonl")
    rows = [(r.name, json.dumps(r.attack), r.value, r.n, r.ci, r.epoch, r.status) for r in results]
    return sorted(rows, key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn"])
def test_two_processes_measure_what_one_measures(strategy: str, tmp_path: Path) -> None:
    build_random_backbone(tmp_path / "backbone")
    (tmp_path / "probes.yaml").write_text(PROBES)
    two = ["--trainer.devices=2", f"--trainer.strategy={strategy}"]
    printed = qpriv(tmp_path, "fit", *SETTINGS, *two, "--data.batch_size=4")
    assert printed.count("run folder: ") == printed.count("the adapter loads without") == 1
    (run,) = (tmp_path / "runs").glob("vqa_off-2*")  # one folder, not one a process
    (accuracy,) = (r for r in read_results(run / "results.jsonl") if r.name == "accuracy")
    names = {name for name, *_ in figures(run)}
    assert accuracy.n == 11
    assert {"attack/membership/auc", "sensitive_tokens_kept"} <= names

    # 33 questions and the probes' items, by one process, on the checkpoint that two have written
    last = f"--ckpt_path={run / 'checkpoints' / 'last.ckpt'}"
    qpriv(tmp_path, "attack", *SETTINGS, last, "--data.batch_size=8", "--run.name=alone")
    (alone,) = (tmp_path / "runs").glob("alone-attack-2*")
    assert figures(alone) == figures(run)

    printed = qpriv(
        tmp_path, "fit", *SETTINGS, *two, "--data.batch_size=4", "--ckpt_path=last",
        "--trainer.max_epochs=2",
    )  # fmt: skip
    assert f"run folder: {run.relative_to(tmp_path)} (goes on)" in printed
    assert {result.epoch for result in read_results(run / "results.jsonl")} == {0, 1}


def begun(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a command in a folder and do not wait for it."""
    script = Path(sys.executable).with_name("qpriv")
    output = (folder / "output.txt").open("ab")
    return subprocess.Popen(
        [script, *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=output,
        stderr=output,
    )


def until(holds: Callable[[], object], seconds: float) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def changed(file: Path, before: int = 0) -> int:
    """Return when a file changed, if it did since; 0 otherwise."""
    now = file.stat().st_mtime_ns if file.exists() else 0
    return now if now > before else 0


def second_process(first: int) -> int:
    """Return the process that the first one of a run has started for itself once more."""
    started = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    (second,) = (
        int(number)
        for number in started
        if b"LOCAL_RANK=1" in Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
    )
    return second


def is_running(process: int) -> bool:
    """Return whether a process is there and not a zombie."""
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
def test_a_run_of_two_processes_dies_with_either_and_goes_on(tmp_path: Path) -> None:
    build_random_backbone(tmp_path / "backbone")
    (tmp_path / "probes.yaml").write_text(PROBES)
    words = [
        "fit",
        *SETTINGS,
        "--trainer.devices=2",
        "--trainer.strategy=ddp",
        "--data.batch_size=4",
        "--trainer.max_epochs=3",
        "--ckpt_path=auto",
    ]
    whole, dying = (f"--trainer.default_root_dir={tmp_path / name}" for name in ("whole", "dying"))
    qpriv(tmp_path, *words, whole)
    checkpoint = tmp_path / "dying" / "checkpoints" / "last.ckpt"
    for killed_first in (True, False):
        before = changed(checkpoint)
        first = begun(tmp_path, *words, dying)
        until(lambda: first.poll() or changed(checkpoint, before), TIMEOUT)
        assert first.poll() is None, (tmp_path / "output.txt").read_text()[-3000:]
        second = second_process(first.pid)
        os.kill(first.pid if killed_first else second, signal.SIGKILL)
        # whoever is left notices, and leaves the folder and the devices free
        assert first.wait(60) != 0
        until(lambda: not is_running(second), 60)
        told = (tmp_path / "output.txt").read_text()
        assert "another process of this run died" in told
        assert "--ckpt_path last" in told
    qpriv(tmp_path, *words, dying)
    assert figures(tmp_path / "dying") == figures(tmp_path / "whole")
    one, other = (
        AtomicCheckpointIO().load_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt")
        for name in ("whole", "dying")
    )
    assert one["global_step"] == other["global_step"]
    assert one["state_dict"].keys() == other["state_dict"].keys()
    for name, weight in one["state_dict"].items():
        assert torch.equal(weight, other["state_dict"][name]), name
