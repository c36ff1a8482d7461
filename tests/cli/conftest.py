import shutil

import pytest

from cli.main import main

SMALL = {
    "SensitivityTeacher": ["--data.num_train=24", "--data.num_eval=12", "--data.batch_size=8"],
    "ThresholdTeacher": ["--data.num_train=6", "--data.num_eval=4", "--data.batch_size=8"],
}
SMALL["PruningStudent"] = SMALL["ThresholdTeacher"]
SMALL["VQAModule"] = [
    "--data.num_train=8",
    "--data.num_memorised=4",
    "--data.num_eval=4",
    "--data.batch_size=8",
    "--data.num_auxiliary=8",
    "--data.num_targets=4",
    "--model.rank=4",
]
QUICK = ["--trainer.max_epochs=1", "--trainer.enable_progress_bar=false"]


@pytest.fixture(scope="session")
def workplace(tmp_path_factory):
    """A folder with finished runs of the three stages before the VQA model."""
    folder = tmp_path_factory.mktemp("workplace")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for stage, module in (
            ("sensitivity_teacher", "SensitivityTeacher"),
            ("threshold_teacher", "ThresholdTeacher"),
            ("student", "PruningStudent"),
        ):
            main(["fit", f"--config=tiny/{stage}.yaml", *QUICK, *SMALL[module], "--run.wandb=off"])
    return folder


@pytest.fixture
def here(workplace, tmp_path_factory, monkeypatch):
    """A folder of the test's own in which those runs lie; what it leaves there no other test sees."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "runs").mkdir()
    shutil.copytree(workplace / "runs" / "latest", folder / "runs" / "latest", symlinks=True)
    for run in (workplace / "runs").iterdir():
        if run.name != "latest":
            (folder / "runs" / run.name).symlink_to(run)
    monkeypatch.chdir(folder)
    return folder
