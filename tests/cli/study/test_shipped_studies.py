"""The studies in the package: whole, within their budget, and accepted by the command line."""

import re
from pathlib import Path

import pytest

from cli import main as command
from cli.study import Forecast, Trial, cells, read_study
from cli.train import CONFIGS
from qpriv.result import read_results

STUDIES = sorted((CONFIGS / "study").glob("*.yaml"))


def runs_of(study: Path, out: Path = Path("out")) -> list[Trial]:
    return cells(read_study(study), study.parent, out)


def one_of_each_kind() -> list[tuple[str, Trial]]:
    """Return a run of each set of configurations, policy and paradigm."""
    chosen = {}
    for study in STUDIES:
        for cell in runs_of(study):
            if (
                re.search(r"\{[\w.-]+:\S+\}", " ".join(cell.overrides))
                or cell.command == "documents score"
            ):
                continue  # it needs what earlier runs left
            keys = frozenset(
                override for override in cell.overrides
                if override.startswith(("--model.policy=", "--model.paradigm="))
            )  # fmt: skip
            chosen.setdefault((cell.configs, keys), (f"{study.stem}-{cell.name}", cell))
    return list(chosen.values())


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.stem)
def test_a_shipped_study_is_whole_and_within_its_budget(study):
    read = read_study(study)
    grid = runs_of(study)
    assert read.name == study.stem and read.budget_minutes is not None
    assert Forecast(grid, {}, read.jobs).whole <= read.budget_minutes
    assert len({cell.folder for cell in grid}) == len(grid)


def test_the_full_study_holds_what_the_claims_need():
    names = {cell.name for cell in runs_of(CONFIGS / "study" / "full.yaml")}
    seeds = {cell.seed for cell in runs_of(CONFIGS / "study" / "full.yaml")}
    ladder = {"policies-fixed-0.3-fused", "attacked-fixed-0.5-fused", "policies-fixed-0.7-fused"}
    assert ladder | {"attacked-off", "attacked-dtp-fused", "policies-constant-fused"} <= names
    for branch in ("grounded", "random"):
        assert {f"alpha-{branch}-{alpha}" for alpha in ("0", "0.25", "0.5", "0.75", "1")} <= names
    assert len(seeds) == 3


@pytest.mark.parametrize(
    ("cell"),
    [cell for _, cell in one_of_each_kind()],
    ids=[name for name, _ in one_of_each_kind()],
)
def test_the_command_line_accepts_a_run_of_each_kind(cell, capsys):
    arguments = [word for word in cell.arguments() if "--ckpt_path" not in word]
    with pytest.raises(SystemExit) as leaving:
        command.main([*arguments, "--print_config"])
    assert not leaving.value.code, capsys.readouterr().err
    printed = capsys.readouterr().out
    folder, seed = ("default_root_dir", "seed_everything")
    if cell.command != "fit":
        folder, seed = ("out", "seed")
    assert f"{folder}: {cell.folder}" in printed
    assert f"{seed}: {cell.seed}" in printed


@pytest.mark.slow
def test_the_smoke_study_runs_from_the_command_line_to_its_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command.main(["study", "--config", "study/smoke.yaml", "--out", "out"])
    said = capsys.readouterr().out
    assert "6 of 6 runs are done." in said and "report: out/report.html" in said
    policies = {r.policy for r in read_results(tmp_path / "out" / "results.jsonl")}
    assert {"off", "fixed(0.5,fused)", "dtp(fused)"} <= policies
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<img") == 6, "three policies, reconstructions and kept tokens"
