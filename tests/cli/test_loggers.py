import getpass
import json
import os
import platform
import re
import time
from pathlib import Path

import pytest
import wandb

from cli.loggers import JsonLogger, PrivateWandbLogger, private_settings
from cli.main import SURROUNDINGS, main
from cli.run import RunOptions, loggers
from qpriv.errors import ConfigError


def test_a_line_a_step_and_none_twice_after_a_resume(tmp_path):
    logger = JsonLogger(tmp_path)
    for step in range(4):
        logger.log_metrics({"epoch": 0.0, "train/loss": 1.0 / (step + 1)}, step)
    path = tmp_path / "metrics.jsonl"
    with path.open("a") as file:
        file.write('{"epoch": 0, "step": 4, "tr')  # what a killed run leaves behind
    logger.rewind(2)
    logger.log_metrics({"epoch": 0.0, "train/loss": 0.5}, 2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert lines[2] == {"epoch": 0, "step": 2, "train/loss": 0.5}


def test_wandb_is_offline_and_knows_nothing_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["qpriv", "fit", "--api-token", "HUNTER2-planted"])
    monkeypatch.delenv("WANDB_MODE", raising=False)
    logger = PrivateWandbLogger(tmp_path / "run-1")
    logger.log_hyperparams({"data": {"root": str(tmp_path / "secret-patients")}, "rank": 4})
    logger.log_metrics({"epoch": 0, "attack/fora/psnr": 21.5}, step=3)
    assert logger.experiment.offline
    logger.finalize("success")

    (record,) = (tmp_path / "run-1").rglob("run-*.wandb")
    written_soon(record, b"attack/fora/psnr")
    uploaded = [
        record,
        *(path for path in record.parent.joinpath("files").rglob("*") if path.is_file()),
    ]
    content = b"".join(path.read_bytes() for path in uploaded)
    assert b"attack/fora/psnr" in content
    here = Path(__file__).parents[2]
    for private in ("HUNTER2", platform.node(), str(here), f"/home/{getpass.getuser()}"):
        # a word of its own: a short host name may be a part of a random number
        assert not re.search(rb"(?<!\w)" + re.escape(private.encode()) + rb"(?!\w)", content)
    assert b"secret-patients" in content  # names stay, folders go
    assert str(tmp_path).encode() not in content


def test_two_runs_in_one_process_are_two_runs(tmp_path):
    for number in (1, 2):
        logger = PrivateWandbLogger(tmp_path / f"run-{number}")
        logger.log_metrics({"epoch": 0, "x": number}, step=0)
        logger.finalize("success")
        assert len(list((tmp_path / f"run-{number}").rglob("run-*.wandb"))) == 1


def test_a_run_that_became_online_is_an_error(tmp_path, monkeypatch):
    class Online:
        offline = False

        def finish(self, exit_code):
            self.code = exit_code

    monkeypatch.setattr(wandb, "init", lambda **_: Online())
    with pytest.raises(ConfigError, match="online"):
        _ = PrivateWandbLogger(tmp_path).experiment


def test_a_lost_dashboard_does_not_stop_the_run(tmp_path, monkeypatch, caplog):
    logger = PrivateWandbLogger(tmp_path / "run")
    run = logger.experiment

    def lost(*_, **__):
        raise ConnectionResetError("Connection lost")

    monkeypatch.setattr(run, "log", lost)
    for step in range(3):
        logger.log_metrics({"x": 1.0}, step)
    assert caplog.text.count("W&B is lost") == 1
    monkeypatch.undo()
    logger.finalize("failed")


def test_the_mode_is_set_in_code():
    assert private_settings("offline").mode == "offline"
    assert private_settings("online").mode == "online"


def written_soon(file, content, seconds=60):
    """Wait for W&B's own process, which may write after a run is finished."""
    end = time.monotonic() + seconds
    while content not in file.read_bytes() and time.monotonic() < end:
        time.sleep(0.1)


def test_no_dashboard_tells_machine_or_folders(tmp_path, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "planted-host")
    run = tmp_path / "ada" / "run"
    run.mkdir(parents=True)
    settings = {"data": {"root": str(tmp_path / "ada" / "patients")}, "rank": 4}
    chosen = loggers(RunOptions(wandb="offline"), run)
    for logger in chosen:
        logger.log_hyperparams(settings)
        logger.log_metrics({"epoch": 0.0, "attack/fora/psnr": 21.5}, 3)
        logger.save()
        logger.finalize("success")

    (transaction_log,) = run.rglob("*.wandb")
    written_soon(transaction_log, b"attack/fora/psnr")
    files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert sum(b"attack/fora/psnr" in content for content in files.values()) == len(chosen) == 4
    assert any(b"patients" in content for content in files.values())
    told = [p for p, content in files.items() if b"planted-host" in content or b"/ada" in content]
    assert told == []
    assert [path for path in files if "planted-host" in path.name] == []


PLAIN = "trainer: {logger: {class_path: lightning.pytorch.loggers.WandbLogger, init_args: %s}}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{offline: true}", "its settings can put the run online"),
        ("{offline: true, settings: {mode: online}}", "not accepted"),
    ],
)
def test_a_configuration_cannot_put_a_run_online(given, told, tmp_path, monkeypatch, capsys):
    def called(**_):
        raise AssertionError("W&B was started")

    monkeypatch.setattr(wandb, "init", called)
    monkeypatch.chdir(tmp_path)
    Path("plain.yaml").write_text(PLAIN % given)
    with pytest.raises(SystemExit) as leaving:
        main(["fit", "--config=tiny/sensitivity_teacher.yaml", "--config=plain.yaml"])
    assert leaving.value.code == 2
    assert told in capsys.readouterr().err


def test_the_environment_cannot_put_a_run_online(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    logger = PrivateWandbLogger(tmp_path / "run")
    assert logger.experiment.offline
    logger.finalize("success")


def test_libraries_are_told_to_send_nothing(monkeypatch, tmp_path):
    for name in SURROUNDINGS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "nothing")])
    assert {os.environ[name] for name in ("DO_NOT_TRACK", "HF_HUB_DISABLE_TELEMETRY")} == {"1"}
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"


def test_what_is_no_number_is_written_as_null(tmp_path):
    JsonLogger(tmp_path).log_metrics({"a": float("nan"), "b": 1.0, "epoch": 2}, step=3)
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail) == {
        "epoch": 2,
        "step": 3,
        "a": None,
        "b": 1.0,
    }
