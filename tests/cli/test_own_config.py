"""A run's own ``config.yaml`` is what the other commands read, without an edit."""

import json
import shutil
from dataclasses import dataclass

import pytest

from callbacks import Probe
from cli.main import main
from qpriv.result import Result, read_results

from .conftest import QUICK, SMALL


@dataclass(eq=False, repr=False, kw_only=True)
class Counting(Probe):
    """Counts to one."""

    name = "counting"

    def plan(self, visit):
        return [["one"]]

    def measure(self, item, visit):
        return [Result(name="attack/counting/one", value=1.0, n=1, seed=visit.seed)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, moved since: its configuration names the folder in which it was."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small = [*SMALL["VQAModule"], "--run.wandb=off", "--run.tensorboard=false"]
        probe = f"--trainer.callbacks={__name__}.Counting"
        main(
            ["fit", "--config=tiny/vqa.yaml", *QUICK, *small, probe, "--trainer.default_root_dir=X"]
        )
        (folder / "archive").mkdir()
        shutil.move("X", "archive/X")
    return folder / "archive" / "X"


@pytest.fixture
def of_run(run, tmp_path, monkeypatch):
    """The words that name the run to a command."""
    monkeypatch.chdir(tmp_path)
    return [f"--config={run / 'config.yaml'}", f"--ckpt_path={run / 'checkpoints' / 'last.ckpt'}"]


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("validate", "results.jsonl"),
        pytest.param("test", "results.jsonl", marks=pytest.mark.slow),
        ("predict", "predictions.jsonl"),
        ("attack", "results.jsonl"),
    ],
)
def test_a_command_measures_a_run_in_a_folder_of_its_own(
    command, left, of_run, run, tmp_path, capsys
):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    main([command, *of_run])
    (made,) = tmp_path.glob(f"runs/X-{command}-*")
    assert (made / left).stat().st_size
    assert f"run folder: runs/{made.name}" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    if command == "attack":
        assert [r.epoch for r in read_results(made / left) if r.name.endswith("/one")] == [0]


def test_a_plan_of_a_run(of_run, capsys):
    main(["plan", *of_run, "--json"])
    assert json.loads(capsys.readouterr().out)


def test_a_fit_is_told_how_to_go_on_and_a_measurement_is_not(of_run, run, capsys):
    told = {"fit": True, "test": False}
    for command, goes_on in told.items():
        with pytest.raises(SystemExit):
            main([command, of_run[0], f"--trainer.default_root_dir={run}"])
        error = capsys.readouterr().err
        assert "holds a run already" in error
        assert ("--ckpt_path last" in error) is goes_on


def test_a_moved_run_goes_on_where_it_lies(run, of_run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "X")
    main(["fit", f"--config={tmp_path / 'X' / 'config.yaml'}", "--ckpt_path=last",
          "--trainer.max_epochs=2"])  # fmt: skip
    assert f"run folder: {tmp_path / 'X'} (goes on)" in capsys.readouterr().out
    epochs = {result.epoch for result in read_results(tmp_path / "X" / "results.jsonl")}
    assert epochs == {0, 1}
