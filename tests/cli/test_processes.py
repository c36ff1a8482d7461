"""`qpriv fit` on two processes measures what one process measures, and one goes on from its files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
def test_two_processes_measure_what_one_measures(tmp_path: Path) -> None:
    build_random_backbone(tmp_path / "backbone")
    (tmp_path / "probes.yaml").write_text(PROBES)
    two = ["--trainer.devices=2", "--trainer.strategy=ddp"]
    printed = qpriv(tmp_path, "fit", *SETTINGS, *two, "--data.batch_size=4")
    assert printed.count("run folder: ") == 1
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
