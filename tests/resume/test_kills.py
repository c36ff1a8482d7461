"""Runs that die again and again, in the middle of anything, end as if nothing had happened."""

import random
from pathlib import Path

import pytest

from tests.resume.moments import EXIT_CODES, PLACES, End
from tests.resume.runs import differences, everything, exit_code, output, run_through, started
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
      init_args: {client: supervised, max_samples: 3, auxiliary_samples: 6, steps: 2, batch_size: 3}
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


def made(folder: Path) -> Path:
    """Return a folder with all that a run needs."""
    folder.mkdir()
    build_random_backbone(folder / "backbone")
    (folder / "probes.yaml").write_text(PROBES)
    return folder


def drawn(number: int, seed: int) -> list[End]:
    """Return ends at places and times of a seeded draw; no place again before all had a turn."""
    draw = random.Random(seed)
    places = [place for _ in range(2) for place in draw.sample(list(PLACES), len(PLACES))]
    return [End(place, draw.randint(1, PLACES[place].times)) for place in places[:number]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paradigm", "kills", "seed", "minutes"),
    [("centralized", 14, 3, "null"), ("federated", 6, 4, "null"), ("federated", 6, 8, "0")],
)
def test_a_run_that_dies_again_and_again_ends_as_one_that_never_did(
    paradigm: str, kills: int, seed: int, minutes: str, tmp_path: Path
) -> None:
    words = [*FIT, *PARADIGMS[paradigm]]
    whole, dying = made(tmp_path / "whole"), made(tmp_path / "dying")
    seconds = run_through(whole, words)
    assert b'"failed"' not in (whole / "run" / "results.jsonl").read_bytes()
    words.append(f"--run.checkpoint_minutes={minutes}")
    ends = [*drawn(kills, seed), *(OTHER_ENDS if paradigm == "centralized" else ())]
    random.Random(seed).shuffle(ends)
    for end in ends:
        code = exit_code(started(dying, words, end))
        assert code == EXIT_CODES[end.death], (end, output(dying)[-3000:])
        if end.death == "full disk":
            assert "No space left on device" in output(dying)
        if end.death != "killed":
            assert "--ckpt_path last" in output(dying)
    for share in (0.2, 0.6):  # and at any moment of the clock
        child = started(dying, words, None)
        child.join(share * seconds)
        child.kill()
        assert exit_code(child) in {EXIT_CODES["killed"], 0}
    run_through(dying, words)
    assert differences(everything(whole), everything(dying)) == []
