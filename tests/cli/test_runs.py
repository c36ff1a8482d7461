"""A run's life as a person sees it: stopped, continued, loaded, never overwritten."""

import errno
import json
import os
import shutil

import lightning as L
import pytest
import torch
import yaml

from cli.errors import told_briefly
from cli.main import main
from cli.run_folder import RunOptions, open_run
from qpriv.errors import ConfigError
from tests.data import pictures
from tests.held import held_by_another

from .conftest import QUICK, SMALL

FIT = [
    "fit",
    "--config=tiny/vqa.yaml",
    *SMALL["VQAModule"],
    "--model.dropout=0.1",
    "--trainer.enable_progress_bar=false",
    "--trainer.max_epochs=3",
    "--trainer.log_every_n_steps=1",
    "--run.wandb=off",
]


class StopInSecondEpoch(L.Callback):
    """Presses Ctrl-C in the middle of the second epoch."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.current_epoch == 1 and batch_idx == 1:
            raise KeyboardInterrupt


def weights(run):
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def lines(run, name):
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


@pytest.mark.slow
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(here, tmp_path, capsys):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    main([*FIT, f"--trainer.default_root_dir={whole}"])
    stop = f"--trainer.callbacks={__name__}.StopInSecondEpoch"
    with pytest.raises(SystemExit) as leaving:
        main([*FIT, f"--trainer.default_root_dir={stopped}", stop])
    assert leaving.value.code == 130
    assert "--ckpt_path last" in capsys.readouterr().err
    main([*FIT, f"--trainer.default_root_dir={stopped}", "--ckpt_path=last"])

    first, second = weights(whole), weights(stopped)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert lines(whole, "metrics.jsonl") == lines(stopped, "metrics.jsonl")
    assert lines(whole, "results.jsonl") == lines(stopped, "results.jsonl")


def test_a_run_that_died_before_its_first_checkpoint_starts_anew(here, tmp_path):
    run = [*FIT, *QUICK, f"--trainer.default_root_dir={tmp_path}", "--ckpt_path=auto"]
    main(run)
    first = weights(tmp_path), lines(tmp_path, "metrics.jsonl"), lines(tmp_path, "results.jsonl")
    shutil.rmtree(tmp_path / "checkpoints")
    main(run)
    again = weights(tmp_path), lines(tmp_path, "metrics.jsonl"), lines(tmp_path, "results.jsonl")
    assert all(torch.equal(first[0][name], again[0][name]) for name in first[0])
    assert first[1:] == again[1:]


def test_what_is_typed_beats_the_checkpoint_and_the_checkpoint_the_defaults(here, tmp_path):
    trained, asked = tmp_path / "trained", tmp_path / "asked"
    main([*FIT, *QUICK, f"--trainer.default_root_dir={trained}"])
    main(
        [
            "validate",
            "--model=VQAModule",
            "--model.max_new_tokens=3",
            "--data=FaceScenes",
            "--data.num_eval=2",
            f"--ckpt_path={trained / 'checkpoints' / 'best.ckpt'}",
            f"--trainer.default_root_dir={asked}",
            "--run.wandb=off",
        ]
    )
    settings = yaml.safe_load((asked / "config.yaml").read_text())["model"]["init_args"]
    assert settings["rank"] == 4  # the default is 32
    assert settings["max_new_tokens"] == 3


def test_a_checkpoint_of_another_class_is_refused(here, capsys):
    student = next(here.glob("runs/student-2*")) / "checkpoints" / "last.ckpt"
    with pytest.raises(SystemExit) as leaving:
        main(["validate", "--config=tiny/vqa.yaml", f"--ckpt_path={student}"])
    assert leaving.value.code == 2
    assert "it holds a PruningStudent, not a VQAModule" in capsys.readouterr().err


@pytest.mark.slow
def test_predictions_and_attack_of_a_checkpoint(here, tmp_path):
    trained = tmp_path / "trained"
    main([*FIT, *QUICK, f"--trainer.default_root_dir={trained}"])
    checkpoint = f"--ckpt_path={trained / 'checkpoints' / 'best.ckpt'}"
    common = ["--config=tiny/vqa.yaml", *SMALL["VQAModule"], checkpoint, "--run.wandb=off"]
    main(["predict", *common, f"--trainer.default_root_dir={tmp_path / 'answers'}"])
    predicted = lines(tmp_path / "answers", "predictions.jsonl")
    assert len({line["key"] for line in predicted}) == len(predicted) == 8
    main(
        [
            "attack",
            *common,
            "--config=study/probes/tiny.yaml",
            f"--trainer.default_root_dir={tmp_path / 'attacked'}",
        ]
    )
    names = {line["name"] for line in lines(tmp_path / "attacked", "results.jsonl")}
    assert {"accuracy", "attack/supervised_inversion/psnr", "attack/membership/auc"} <= names


def test_folders_are_never_written_to_twice(tmp_path):
    options = RunOptions(root=str(tmp_path))
    folders = []
    for _ in range(3):
        run = open_run(options, "fit", "vqa", None, None)
        run.folder.mkdir(parents=True)
        folders.append(run.folder)
    assert len(set(folders)) == 3
    (folders[0] / "config.yaml").touch()
    with pytest.raises(ConfigError, match="holds a run already"):
        open_run(options, "fit", "vqa", str(folders[0]), None)


def test_auto_starts_where_there_is_nothing_and_last_goes_on_with_the_newest(tmp_path):
    options = RunOptions(root=str(tmp_path))
    assert open_run(options, "fit", "vqa", None, "auto").ckpt_path is None
    with pytest.raises(ConfigError, match="no run of vqa to go on with"):
        open_run(options, "fit", "vqa", None, "last")
    for name in ("vqa-20260101-000000", "vqa-20260102-000000", "vqa_dtp-20260103-000000"):
        checkpoint = tmp_path / name / "checkpoints" / "last.ckpt"
        checkpoint.parent.mkdir(parents=True)
        checkpoint.touch()
    found = open_run(options, "fit", "vqa", None, "last")
    assert found.resumed
    assert found.folder.name == "vqa-20260102-000000"


def test_a_run_that_died_before_its_first_checkpoint_is_not_passed_over(tmp_path):
    options = RunOptions(root=str(tmp_path))
    older, newer = (tmp_path / f"vqa-2026010{day}-000000" for day in (1, 2))
    for run in (older, newer):
        run.mkdir()
        (run / "config.yaml").touch()
    (older / "checkpoints").mkdir()
    (older / "checkpoints" / "last.ckpt").touch()
    os.utime(older / "config.yaml", (1, 1))
    os.utime(older / "checkpoints" / "last.ckpt", (2, 2))
    for asked in ("last", "auto"):
        found = open_run(options, "fit", "vqa", None, asked)
        assert (found.folder, found.ckpt_path) == (newer, None)
    # the line that Ctrl-C prints holds in a named folder as well
    assert open_run(options, "fit", "vqa", str(newer), "last").folder == newer


def test_a_run_that_is_at_work_is_left_alone(tmp_path):
    options = RunOptions(root=str(tmp_path))
    run = tmp_path / "vqa-20260101-000000"
    run.mkdir()
    (run / "config.yaml").touch()
    with held_by_another(run) as process:
        with pytest.raises(ConfigError, match=f"process {process} is at work in this folder"):
            open_run(options, "fit", "vqa", None, "last")
    assert open_run(options, "fit", "vqa", None, "last").folder == run


def test_processes_of_one_run_share_its_folder(tmp_path, monkeypatch):
    options = RunOptions(root=str(tmp_path))
    first = open_run(options, "fit", "vqa", None, None)
    first.folder.mkdir()
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert open_run(options, "fit", "vqa", None, None) == first


@pytest.mark.parametrize(
    "launcher", [{"WORLD_SIZE": "2"}, {"SLURM_NTASKS": "2"}, {"NODE_RANK": "1"}]
)
def test_processes_that_were_started_apart_need_a_named_folder(launcher, tmp_path, monkeypatch):
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    options = RunOptions(root=str(tmp_path))
    with pytest.raises(ConfigError, match="each would choose a folder of its own"):
        open_run(options, "fit", "vqa", None, None)
    assert open_run(options, "fit", "vqa", str(tmp_path / "run"), None).folder.name == "run"


@pytest.mark.parametrize("number", ["NODE_RANK", "RANK", "SLURM_PROCID", "LOCAL_RANK"])
def test_the_first_process_holds_the_folder_for_those_started_apart(number, tmp_path, monkeypatch):
    options = RunOptions(root=str(tmp_path))
    (tmp_path / "config.yaml").touch()
    monkeypatch.delenv("_QPRIV_RUN_FOLDER", raising=False)
    with held_by_another(tmp_path):
        monkeypatch.setenv(number, "0")
        with pytest.raises(ConfigError, match="is at work in this folder"):
            open_run(options, "fit", "vqa", str(tmp_path), "last")
        monkeypatch.setenv(number, "1")
        assert open_run(options, "fit", "vqa", str(tmp_path), "last").folder == tmp_path


def test_a_folder_that_cannot_be_made_is_told_before_any_work(tmp_path):
    (tmp_path / "runs").touch()  # a file, which stops even the superuser
    with pytest.raises(ConfigError, match="cannot write there"):
        open_run(RunOptions(root=str(tmp_path / "runs")), "fit", "vqa", None, None)


def test_a_disk_that_is_all_but_full_is_told_before_any_work(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=3 << 20))
    with pytest.raises(ConfigError, match="only 3 MiB are free"):
        open_run(RunOptions(root=str(tmp_path)), "fit", "vqa", None, None)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_no_more_is_told_in_a_line(number, capsys):
    with pytest.raises(SystemExit) as leaving, told_briefly(False, "go on with last"):
        try:
            raise OSError(number, os.strerror(number), "runs/vqa/results.jsonl")
        finally:
            raise RuntimeError("in a callback")
    assert leaving.value.code == 2
    told = capsys.readouterr().err
    assert os.strerror(number) in told
    assert "runs/vqa/results.jsonl" in told
    assert told.splitlines()[-1].strip() == "go on with last"


@pytest.mark.parametrize(
    "said",
    [
        "[gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:18626.",
        "NCCL error: remote process exited or there was a network error",
    ],
)
def test_the_death_of_another_process_is_told_in_a_line(said, capsys):
    with pytest.raises(SystemExit) as leaving, told_briefly(False, "go on with last"):
        raise RuntimeError(said)
    assert leaving.value.code == 2
    told = capsys.readouterr().err
    assert "another process of this run died" in told
    assert "go on with last" in told


@pytest.mark.slow
def test_a_fit_goes_on_without_a_picture_that_broke_in_its_middle(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    turns = [{"from": "human", "value": "what?"}, {"from": "gpt", "value": "red"}]
    rows = [{"id": n, "image": f"{n}.png", "conversations": turns} for n in range(8)]
    for number in range(8):
        pictures.save(tmp_path / f"{number}.png", number, size=(90, 70))
    for name in ("train", "val"):
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))

    def fit(epochs, *more):
        words = ["--data=Conversations", f"--data.root={tmp_path}", "--data.batch_size=4"]
        main(["fit", "--config=tiny/vqa.yaml", *words, "--run.wandb=off",
              "--trainer.enable_progress_bar=false", f"--trainer.max_epochs={epochs}",
              f"--trainer.default_root_dir={tmp_path / 'run'}", *more])  # fmt: skip

    fit(1)
    whole = (tmp_path / "3.png").read_bytes()
    middle = len(whole) // 2  # the header and the end are right
    (tmp_path / "3.png").write_bytes(whole[:middle] + bytes(100) + whole[middle + 100 :])
    with pytest.raises(SystemExit) as leaving:
        fit(2, "--ckpt_path=last")
    told = capsys.readouterr().err
    assert leaving.value.code == 2 and "3.png" in told and "Conversations/train/3" in told
    assert "qpriv data check --dataset Conversations" in told and "on_bad_row: drop" in told
    fit(2, "--ckpt_path=last", "--data.on_bad_row=drop")
    epochs = {line.get("epoch") for line in lines(tmp_path / "run", "metrics.jsonl")}
    assert 1 in epochs
