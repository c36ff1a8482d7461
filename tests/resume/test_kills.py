"""Runs that die again and again, in the middle of anything, end as if nothing had happened."""

import multiprocessing
import random
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from callbacks.checkpoint_io import AtomicCheckpointIO
from tests.resume.moments import EXIT_CODES, PLACES, End, start
from tests.tiny_models import build_random_backbone

FIT = [
    "fit",
    "--config=tiny/vqa_off.yaml",
    "--config=probes.yaml",
    "--trainer.default_root_dir=run",
    "--ckpt_path=auto",
    "--model.backbone=backbone",
    "--model.feature_cache=features",
    "--model.rank=2",
    "--model.dropout=0.1",
    "--model.max_new_tokens=2",
    "--data.num_train=8",
    "--data.num_memorised=2",
    "--data.num_eval=6",
    "--data.batch_size=8",
    "--data.eval_batch_size=3",
    "--data.num_auxiliary=6",
    "--data.num_targets=3",
    "--trainer.max_epochs=5",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.enable_model_summary=false",
    "--run.wandb=off",
    "--run.csv=false",
    "--run.tensorboard=false",
]
PROBES = """
trainer:
  callbacks:
    - class_path: SensitivityProbe
      init_args: {max_samples: 3}
    - class_path: ForaProbe
      init_args: {max_samples: 3, auxiliary_samples: 6, steps: 2, batch_size: 3}
    - class_path: MembershipProbe
      init_args: {max_samples: 12, shadows: 2, question_types: null}
"""
PARADIGMS = {
    "centralized": ["--model.paradigm=Centralized"],
    "federated": ["--model.paradigm=Federated", "--model.paradigm.num_clients=2"],
}
OTHER_ENDS = (
    End("something is forced to the disk", 3, "full disk"),
    End("a shadow model begins", 2, "terminated"),
    End("a shadow model begins", 1, "interrupted"),
    End("an attacker learns", 2, "terminated"),
)
TIMEOUT = 600.0


def made(folder: Path) -> Path:
    """Return a folder with all that a run needs."""
    folder.mkdir()
    build_random_backbone(folder / "backbone")
    (folder / "probes.yaml").write_text(PROBES)
    return folder


def started(folder: Path, settings: list[str], end: End | None) -> ForkServerProcess:
    """Start a fit in a process forked from one that has imported everything and done nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.resume.moments"])
    child = context.Process(target=start, args=([*FIT, *settings], folder, end))
    child.start()
    return child


def exit_code(child: ForkServerProcess) -> int | None:
    child.join(TIMEOUT)
    return child.exitcode


def output(folder: Path) -> str:
    return (folder / "output.txt").read_text()


def run_through(folder: Path, settings: list[str]) -> float:
    """Run to the end; return the seconds it took."""
    began = time.monotonic()
    assert exit_code(started(folder, settings, None)) == 0, output(folder)[-3000:]
    return time.monotonic() - began


def everything(folder: Path) -> dict[str, Any]:
    """Return all that a run leaves behind, but for its times, with tensors as bytes."""
    run = folder / "run"
    found: dict[str, Any] = {
        name: (run / name).read_bytes().splitlines() for name in ("results.jsonl", "metrics.jsonl")
    }
    for pattern in ("probes/**/*.json", "adapter*/**/*.safetensors"):
        found |= {str(path.relative_to(run)): path.read_bytes() for path in run.glob(pattern)}
    for kind in ("best", "last"):
        stored = AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / f"{kind}.ckpt")
        found |= leaves(stored, kind)
    return found


def leaves(tree: Any, name: str) -> dict[str, Any]:
    """Return the values of a nested state by name."""
    if isinstance(tree, torch.Tensor):
        return {name: (tree.dtype, tree.shape, tree.numpy().tobytes())}
    if isinstance(tree, list | tuple):
        tree = dict(enumerate(tree))
    if not isinstance(tree, dict):
        return {name: tree}
    # the trainer's checkpoint callback writes this, never reads it, and forgets it at a restart
    inner = {key: value for key, value in tree.items() if key != "current_score"}
    return {n: v for key, value in inner.items() for n, v in leaves(value, f"{name}/{key}").items()}


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def drawn(number: int, seed: int) -> list[End]:
    """Return ends at places and times of a seeded draw; no place again before all had a turn."""
    draw = random.Random(seed)
    places = [place for _ in range(2) for place in draw.sample(list(PLACES), len(PLACES))]
    return [End(place, draw.randint(1, PLACES[place].times)) for place in places[:number]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paradigm", "kills", "seed"), [("centralized", 14, 3), ("federated", 6, 4)]
)
def test_a_run_that_dies_again_and_again_ends_as_one_that_never_did(
    paradigm: str, kills: int, seed: int, tmp_path: Path
) -> None:
    settings = PARADIGMS[paradigm]
    whole, dying = made(tmp_path / "whole"), made(tmp_path / "dying")
    seconds = run_through(whole, settings)
    assert b'"failed"' not in (whole / "run" / "results.jsonl").read_bytes()
    ends = [*drawn(kills, seed), *(OTHER_ENDS if paradigm == "centralized" else ())]
    random.Random(seed).shuffle(ends)
    for end in ends:
        code = exit_code(started(dying, settings, end))
        assert code == EXIT_CODES[end.death], (end, output(dying)[-3000:])
        if end.death == "full disk":
            assert "No space left on device" in output(dying)
        if end.death != "killed":
            assert "--ckpt_path last" in output(dying)
    for share in (0.2, 0.6):  # and at any moment of the clock
        child = started(dying, settings, None)
        child.join(share * seconds)
        child.kill()
        assert exit_code(child) in {EXIT_CODES["killed"], 0}
    run_through(dying, settings)
    assert differences(everything(whole), everything(dying)) == []
