"""How a command ends: with figures, and with where everything lies."""

import shlex
from pathlib import Path

import pytest

from cli.endings import conclusion, written
from tests.qpriv.reporting import fakes


def test_a_fit_ends_with_a_table_and_what_shows_more(run_folder: Path) -> None:
    told = conclusion(run_folder)
    assert "Accuracy" in told and "blind baseline" in told
    assert f"report: qpriv report {run_folder}" in told
    assert "predictions" not in told  # there is no checkpoint to predict with


def test_commands_can_be_typed_as_they_are_told(tmp_path: Path) -> None:
    folder = fakes.write_run(tmp_path / "my run", fakes.policy_results("off", seed=0))
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "best.ckpt").write_bytes(b"")
    (line,) = (each for each in conclusion(folder).splitlines() if each.startswith("predictions"))
    words = shlex.split(line)
    assert words[1:4] == ["qpriv", "predict", "--config"] and Path(words[4]).parent == folder
    assert Path(words[6]).is_file()


def test_what_is_there_is_named(run_folder: Path) -> None:
    for name in ("report.html", "predictions.jsonl"):
        (run_folder / name).write_text("")
    told = conclusion(run_folder).splitlines()
    assert f"report: {run_folder / 'report.html'}" in told
    assert f"predictions: {run_folder / 'predictions.jsonl'}" in told
    assert written(run_folder) == f"predictions: {run_folder / 'predictions.jsonl'}"


def test_a_model_that_answers_nothing_has_no_predictions(run_folder: Path) -> None:
    assert "predictions" not in conclusion(run_folder, answers=False)


def test_a_run_without_a_headline_says_how_much_it_measured(tmp_path: Path) -> None:
    folder = fakes.write_run(tmp_path, [fakes.result("val/loss", 0.5, policy="")])
    assert "1 figures, none of them a headline" in conclusion(folder)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return fakes.write_run(tmp_path / "run", fakes.policy_results("off", seed=0))
