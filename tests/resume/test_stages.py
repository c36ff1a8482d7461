"""The stages before the VQA model die as it does, and end as if nothing had happened."""

from pathlib import Path

import pytest

from tests.resume.moments import EXIT_CODES, End
from tests.resume.runs import differences, everything, exit_code, output, run_through, started
from tests.tiny_models import build_random_backbone

COMMON = [
    "--trainer.default_root_dir=run",
    "--ckpt_path=auto",
    "--model.backbone=backbone",
    "--model.feature_cache=features",
    "--data.num_train=12",
    "--data.num_eval=6",
    "--data.batch_size=4",
    "--trainer.max_epochs=6",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--run.wandb=off",
    "--run.csv=false",
    "--run.tensorboard=false",
]
ENDS = [
    End("settings are written"),
    End("features are stored"),
    End("{work}", 2),
    End("a figure is logged", 3),
    End("the predictor is exported"),
    End("a checkpoint is half written"),
    End("a checkpoint is there"),
    End("{check}", 2),
    End("a checkpoint has two names"),
    End("something is forced to the disk", 2, "full disk"),
    End("{work}", 1, "terminated"),
]
STAGES = {
    "sensitivity_teacher": ("a bag's step begins", "a bag is validated"),
    "threshold_teacher": ("a ratio's step begins", "a ratio is validated"),
    "student": ("a ratio's step begins", "a ratio is validated"),
}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stages' common backbone, where each leaves its predictor."""
    folder = tmp_path_factory.mktemp("stages")
    build_random_backbone(folder / "backbone")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("minutes", ["null", "0"], ids=["epochs", "batches"])
def test_each_stage_that_dies_again_and_again_ends_as_one_that_never_did(
    before: Path, minutes: str
) -> None:
    """With a checkpoint an epoch, and one a batch; those that never die have one an epoch."""
    predictor = None
    for stage, (work, check) in STAGES.items():
        whole, dying = before / f"{stage}-{minutes}-whole", before / f"{stage}-{minutes}-dying"
        words = ["fit", f"--config=tiny/{stage}.yaml", *COMMON]
        for folder in (whole, dying):
            folder.mkdir()
            (folder / "backbone").symlink_to(before / "backbone")
        if predictor is not None:
            words.append(f"--model.predictor={predictor}")
        run_through(whole, words)
        predictor = whole / "run" / "predictor"
        ends = list(ENDS)
        if stage != "sensitivity_teacher":
            ends[2:2] = [End("the oracle searches", 2)]
        for end in ends:
            met = End(end.place.format(work=work, check=check), end.number, end.death)
            code = exit_code(started(dying, [*words, f"--run.checkpoint_minutes={minutes}"], met))
            assert code == EXIT_CODES[met.death], (stage, met, output(dying)[-3000:])
        run_through(dying, words)
        assert differences(everything(whole), everything(dying)) == []
