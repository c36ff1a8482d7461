"""Studies through their public function, with a fit that is only a stand-in."""

import json
import os
from pathlib import Path

import pytest

from cli.study import Forecast, cells, read_study, run_study
from cli.study.workers import Fit
from qpriv.errors import ConfigError
from qpriv.result import read_results
from tests.qpriv.reporting import fakes

STUDY = """
name: small
seeds: [0, 1]
budget_minutes: 3
stages:
  - name: teacher
    config: fit.yaml
    minutes: 1
  - name: student
    config: fit.yaml
    minutes: 1
    needs: [teacher]
    overrides: ["--model.teacher={teacher}/export", "--data.world={seed}"]
  - name: vqa
    config: fit.yaml
    minutes: 2
    needs: [student]
    overrides: [--trainer.max_epochs=1]
    variants:
      - name: "off"
      - name: dtp
        overrides: ["--model.policy.predictor={student}"]
        tags: {utility: grounded}
        minutes: 4
"""


@pytest.fixture
def config(tmp_path) -> Path:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "fit.yaml").write_text("a: 1\n")
    path = tmp_path / "configs" / "study.yaml"
    path.write_text(STUDY)
    return path


class FakeFit:
    """Stands in for ``qpriv fit``: writes a run folder, or fails where it is told to."""

    def __init__(self, *, failing: str = "", error: BaseException | None = None) -> None:
        self.failing, self.error = failing, error
        self.calls: list[list[str]] = []

    @property
    def names(self) -> list[str]:
        return [_folder(call).name for call in self.calls]

    def __call__(self, arguments: list[str]) -> None:
        self.calls.append(arguments)
        folder = _folder(arguments)
        if self.failing and self.failing in folder.name:
            raise self.error or RuntimeError("no luck")
        fakes.write_run(folder, [fakes.result("accuracy", 0.8, half=0.1)])


def _folder(arguments: list[str]) -> Path:
    prefix = "--trainer.default_root_dir="
    return Path(next(a for a in arguments if a.startswith(prefix)).removeprefix(prefix))


def study(config: Path, fit: Fit, **given) -> tuple:
    said: list[str] = []
    outcome = run_study(config, config.parent.parent / "out", fit, echo=said.append, **given)
    return outcome, said


ALL = [
    f"{name}-seed{seed}" for seed in (0, 1) for name in ("teacher", "student", "vqa-off", "vqa-dtp")
]


def test_every_run_gets_its_command_line_seed_by_seed(config):
    fit = FakeFit()
    outcome, _ = study(config, fit)
    out = config.parent.parent / "out"
    assert fit.names == ALL and outcome.done == ALL and outcome.exit_code == 0
    assert fit.calls[5] == [
        "fit",
        f"--config={config.parent / 'fit.yaml'}",
        "--seed_everything=1",
        f"--trainer.default_root_dir={out / 'student-seed1'}",
        "--ckpt_path=auto",
        f"--model.teacher={out / 'teacher-seed1'}/export",
        "--data.world=1",
    ]
    assert fit.calls[3][5:] == [
        "--trainer.max_epochs=1",
        f"--model.policy.predictor={out / 'student-seed0'}",
    ]


def test_the_forecast_comes_first_and_warns_of_the_budget(config):
    _, said = study(config, FakeFit())
    assert said[0].startswith("Study small: 8 runs")
    assert "16.0" in said[1].splitlines()[-1]
    assert said[2] == "That is over the budget of 3 minutes."
    assert said[3].startswith("[1/8] teacher-seed0: starts, about 16 minutes left")


def test_over_its_budget_a_forecast_names_the_stage_and_what_to_do(config):
    _, said = study(config, FakeFit())
    (line,) = [line for line in said[1].splitlines() if "most of it" in line]
    costs = {each.split()[0]: float(each.split()[3]) for each in said[1].splitlines()[1:-1]}
    assert line.split()[0] == max(costs, key=costs.get)
    assert "fewer seeds" in line and "--jobs" in line and "budget_minutes" in line


def test_within_its_budget_a_forecast_advises_nothing(config):
    config.write_text(config.read_text().replace("budget_minutes: 3", "budget_minutes: 300"))
    _, said = study(config, FakeFit())
    assert "most of it" not in said[1] and not said[2].startswith("That is over")


def test_the_report_knows_the_tags_and_merges_all_results(config):
    outcome, _ = study(config, FakeFit())
    assert outcome.report == config.parent.parent / "out" / "report.html"
    assert "utility grounded" in outcome.report.read_text()
    assert len(read_results(outcome.report.parent / "results.jsonl")) == len(ALL)


def test_the_table_comes_last_with_the_tags(config):
    _, said = study(config, FakeFit())
    table = next(text for text in said if text.startswith("policy"))
    assert "off · utility grounded" in table and "0.800" in table


def test_a_second_start_does_nothing_again(config):
    study(config, FakeFit())
    fit = FakeFit()
    outcome, said = study(config, fit)
    assert fit.calls == [] and outcome.done == ALL and outcome.report is not None
    assert "[8/8] vqa-dtp-seed1: done before" in said


def test_a_failing_run_stops_only_what_needs_it(config):
    fit = FakeFit(failing="student-seed0")
    outcome, said = study(config, fit)
    assert outcome.exit_code == 1
    assert outcome.failed == {"student-seed0": "RuntimeError: no luck"}
    assert outcome.blocked == ["vqa-off-seed0", "vqa-dtp-seed0"]
    assert outcome.done == ["teacher-seed0", *ALL[4:]]
    log = (config.parent.parent / "out" / "student-seed0" / "failed.txt").read_text()
    assert log.startswith("qpriv fit --config=") and "no luck" in log
    assert "failed: student-seed0: RuntimeError: no luck" in said
    assert any("left out, needs student-seed0" in line for line in said)


def test_a_run_that_failed_before_is_tried_again(config):
    study(config, FakeFit(failing="student-seed0"))
    fit = FakeFit()
    outcome, _ = study(config, fit)
    assert outcome.exit_code == 0
    assert fit.names == ["student-seed0", "vqa-off-seed0", "vqa-dtp-seed0"]


@pytest.mark.parametrize(("code", "fails"), [(0, False), (None, False), (2, True)])
def test_an_exit_with_a_code_is_a_failure(config, code, fails):
    outcome, _ = study(config, FakeFit(failing="vqa-dtp-seed1", error=SystemExit(code)))
    assert bool(outcome.failed) == fails
    if fails:
        assert outcome.failed["vqa-dtp-seed1"] == "it ended with exit code 2"


def _exit_on_interrupt() -> SystemExit:
    """Return what the trainer makes of Ctrl-C."""
    try:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise SystemExit(1)
    except SystemExit as leaving:
        return leaving


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), _exit_on_interrupt(), SystemExit(130), SystemExit(143)]
)
def test_stopping_says_how_to_go_on_and_keeps_what_is_done(config, error):
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        fit = FakeFit(failing="vqa-off-seed0", error=error)
        run_study(config, config.parent.parent / "out", fit, echo=said.append)
    assert said[-1] == "Stopped. The same command goes on where this one was."
    fit = FakeFit()
    outcome, _ = study(config, fit)
    assert fit.names == ALL[2:] and outcome.exit_code == 0


def test_another_configuration_in_the_same_folder_is_refused(config):
    study(config, FakeFit())
    (config.parent / "fit.yaml").write_text("a: 2\n")
    with pytest.raises(ConfigError, match="teacher-seed0 was run with other settings"):
        study(config, FakeFit())


def test_finished_runs_predict_those_to_come(config):
    grid = cells(read_study(config), config.parent, Path("out"))
    forecast = Forecast(grid, {"teacher-seed0": 3.0, "student-seed0": 3.0})
    minutes = {cell.key: forecast.minutes(cell) for cell in grid}
    assert minutes["teacher-seed1"] == 3.0, "its like took that long"
    assert minutes["vqa-off-seed0"] == 6.0, "stated 2, and all so far took three times as long"
    assert forecast.left == pytest.approx(3 + 3 + 2 * (6 + 12))


def test_the_record_beside_the_results_names_study_and_stage(config):
    study(config, FakeFit())
    record = json.loads((config.parent.parent / "out/vqa-dtp-seed0/cell.json").read_text())
    assert record == {
        "study": "small",
        "stage": "vqa-dtp",
        "tags": {"utility": "grounded"},
        "claim_families": {},
    }


def test_a_figure_of_an_earlier_run_is_read_when_it_is_there(config):
    control = (
        "      - name: constant\n        overrides: ['--model.policy.ratio={vqa-off:accuracy}']\n"
    )
    config.write_text(STUDY + control)
    fit = FakeFit()
    study(config, fit)
    assert fit.calls[4][-1] == "--model.policy.ratio=0.8"


def test_a_figure_nobody_measured_is_that_runs_failure(config):
    control = (
        "      - name: constant\n        overrides: ['--model.policy.ratio={student:nothing}']\n"
    )
    config.write_text(STUDY + control)
    outcome, _ = study(config, FakeFit())
    assert "student measured no nothing" in outcome.failed["vqa-constant-seed0"]


def test_several_configurations_are_given_in_order(config):
    (config.parent / "probes.yaml").write_text("b: 1\n")
    config.write_text(STUDY.replace("config: fit.yaml", "config: [fit.yaml, probes.yaml]", 1))
    fit = FakeFit()
    study(config, fit)
    given = [Path(a.removeprefix("--config=")).name for a in fit.calls[0] if "--config" in a]
    assert given == ["fit.yaml", "probes.yaml"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds: [0, 1]", "seeds: []", "no seeds or no stages"),
        ("seeds: [0, 1]", "seeds: [1, 1]", "repeat"),
        ("seeds: [0, 1]", "seeds: two", r"Expected `array`"),
        ("seeds: [0, 1]", "seeds: [0, 1]\njobs: 0", "jobs is 0"),
        ("minutes: 4", "minuets: 4", "did you mean minutes"),
        ("    minutes: 1\n  - name: student", "  - name: student", "missing required field"),
        ("needs: [teacher]", "needs: [teachr]", "needs teachr.*did you mean teacher"),
        ("needs: [teacher]", "needs: [vqa-off]", "no stage before it"),
        ("config: fit.yaml\n    minutes: 2", "config: fti.yaml\n    minutes: 2", "no fti.yaml"),
        ("name: student", "name: teacher", "teacher is there twice"),
        ("minutes: 2", "minutes: 0", "costs 0"),
        ("{student}", "{studnet:accuracy}", "names studnet, which is no stage before it"),
        ("name: small", "name: [", "while parsing|expected"),
    ],
)
def test_a_study_that_cannot_work_is_refused_before_anything_runs(config, old, new, message):
    assert old in STUDY
    config.write_text(STUDY.replace(old, new, 1))
    fit = FakeFit()
    with pytest.raises(ConfigError, match=message):
        study(config, fit)
    assert fit.calls == []


def fit_apart(arguments: list[str]) -> None:
    """Stands in for ``qpriv fit`` in a process of its own."""
    folder = _folder(arguments)
    print(f"fitting {folder.name}")
    if folder.name == "student-seed0":
        raise RuntimeError("no luck")
    fakes.write_run(folder, [fakes.result("accuracy", 0.8, half=0.1)])
    (folder / "process").write_text(str(os.getpid()))


def test_several_at_a_time_run_in_their_own_processes_and_wait_for_what_they_need(config):
    config.write_text(STUDY.replace("seeds:", "jobs: 2\nseeds:"))
    outcome, said = study(config, fit_apart)
    out = config.parent.parent / "out"
    assert outcome.failed == {"student-seed0": "RuntimeError: no luck"}
    assert sorted(outcome.done) == sorted({*ALL} - {*ALL[1:4]})
    assert outcome.done.index("teacher-seed1") < outcome.done.index("student-seed1")
    assert outcome.blocked == ["vqa-off-seed0", "vqa-dtp-seed0"]
    assert str(os.getpid()) not in {path.read_text() for path in out.glob("*/process")}
    assert (out / "vqa-dtp-seed1" / "log.txt").read_text() == "fitting vqa-dtp-seed1\n"
    assert any("left, 2 runs at a time" in line and "8.0" in line for line in said)


def test_a_page_that_cannot_be_made_does_not_end_the_study(config, monkeypatch):
    attempts: list[Path] = []

    def fail_once(folders, out):
        attempts.append(out)
        if len(attempts) == 1:
            raise ValueError("no page")
        return out / "report.html"

    monkeypatch.setattr("cli.study.runner.write_report", fail_once)
    outcome, said = study(config, FakeFit())
    assert outcome.done == ALL and outcome.report is not None
    assert "no report for now: ValueError: no page" in said


def die(arguments: list[str]) -> None:
    """Stands in for a run whose process the system kills."""
    os._exit(9)


def test_a_killed_process_is_told_of(config):
    with pytest.raises(ConfigError, match="process of a run was killed"):
        study(config, die, jobs=2)


def test_no_jobs_are_refused(config):
    with pytest.raises(ConfigError, match="jobs is 0"):
        study(config, FakeFit(), jobs=0)


def test_a_missing_study_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such study"):
        run_study(tmp_path / "none.yaml", tmp_path, FakeFit())


GRID = """
name: grid
seeds: [0, 1]
stages:
  - name: base
    command: documents train
    config: fit.yaml
    minutes: 1
    grid: {size: [1, 0.5], recipe.patience: [null, 3]}
  - name: clean
    command: documents train
    config: fit.yaml
    minutes: 1
    overrides: ["--baselines=[{base/*}]"]
    grid: {size: [1, 0.5]}
  - name: trained
    command: documents train
    config: fit.yaml
    minutes: 1
    overrides: ["--baselines=[{base}]", "--every=[{base/seeds}]"]
    grid: {size: [1, 0.5], recipe.patience: [null, 3]}
  - name: scores
    command: documents score
    minutes: 1
    overrides: ["--halves=[{clean/*}]"]
"""


@pytest.fixture
def grid(config):
    config.write_text(GRID)
    made = cells(read_study(config), config.parent, Path("out"))
    return {cell.key: cell for cell in made}


def test_a_grid_is_a_run_for_each_combination(grid):
    assert len(grid) == 2 * (4 + 2 + 4 + 1)
    cell = grid["base-size=0.5-patience=null-seed1"]
    assert cell.arguments()[:2] == ["documents", "train"]
    assert cell.arguments()[3:] == [
        "--seed=1",
        "--out=out/base-size=0.5-patience=null-seed1",
        "--size=0.5",
        "--recipe.patience=null",
    ]
    assert cell.tags == {"size": "0.5", "patience": "null"}


def test_a_placeholder_is_the_run_whose_settings_agree(grid):
    cell = grid["trained-size=0.5-patience=3-seed0"]
    assert cell.overrides[0] == "--baselines=[out/base-size=0.5-patience=3-seed0]"
    assert cell.overrides[1] == (
        "--every=[out/base-size=0.5-patience=3-seed0,out/base-size=0.5-patience=3-seed1]"
    )
    assert set(cell.needs) == {
        "base-size=0.5-patience=3-seed0", "base-size=0.5-patience=3-seed1",
    }  # fmt: skip


def test_a_placeholder_of_many_is_all_runs_that_agree(grid):
    assert grid["clean-size=1-seed0"].needs == (
        "base-size=1-patience=null-seed0", "base-size=1-patience=3-seed0",
    )  # fmt: skip
    assert grid["scores-seed1"].needs == ("clean-size=1-seed1", "clean-size=0.5-seed1")
    assert "--config" not in " ".join(grid["scores-seed1"].arguments())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[{base/*}]", "[{base}]", "stands for 2 runs"),
        ("grid: {size: [1, 0.5]}", "grid: {size: []}", "a setting without values"),
        ("command: documents score", "command: fit", "fit and config do not fit"),
        ("command: documents score", "command: document", "Invalid enum value"),
        ("size: [1, 0.5], recipe", "size: [1, 1], recipe", "is there twice"),
    ],
)
def test_a_grid_that_cannot_work_is_refused(config, old, new, message):
    assert old in GRID
    config.write_text(GRID.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        cells(read_study(config), config.parent, Path("out"))


def test_a_run_waits_for_runs_of_later_seeds(config):
    (config.parent / "study.yaml").write_text(GRID)
    started = []

    def fit(arguments):
        folder = Path(next(a for a in arguments if a.startswith("--out=")).removeprefix("--out="))
        started.append(folder.name)
        fakes.write_run(folder, [fakes.result("anls", 0.8, half=0.1)])

    outcome, _ = study(config, fit)
    assert outcome.exit_code == 0 and len(started) == 22
    for key in started:
        if key.startswith("trained-"):
            point = key.removeprefix("trained-").rpartition("-seed")[0]
            needs = [f"base-{point}-seed{seed}" for seed in (0, 1)]
            assert max(map(started.index, needs)) < started.index(key)
