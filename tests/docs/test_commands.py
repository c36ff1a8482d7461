"""Commands of the documentation run as they are shown: long ones in a step or two, on fakes."""

import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli.errors import CommandParser
from cli.main import COMMANDS, main
from qpriv.transport.certificates import make_certificates
from tests.cli.conftest import SMALL
from tests.privacy.watched import write_patients

from .commands import PROGRAMS, ROOT, Command, python_blocks, recipe, shown

STEP = [
    "--trainer.max_epochs=1",
    "--trainer.limit_train_batches=2",
    "--trainer.limit_val_batches=1",
    "--trainer.enable_progress_bar=false",
    "--data.batch_size=8",
    "--model.rank=4",
    "--run.wandb=off",
]
PROBES = "--config=study/probes/tiny.yaml"

NOT_RUN = {
    "llava-hf/": "needs 14 GB of weights: its settings are parsed",
    "qpriv server": "several machines: parsed here, run by tests/cli/test_parties.py",
    "qpriv client": "several machines: parsed here, run by tests/cli/test_parties.py",
    "qpriv prepare": "most of an hour: parsed here, run by tests/qpriv/pretraining",
    "--data.test_split": "needs the VQAv2 release: parsed here, run by tests/cli/test_predictions.py",
}
"""What is parsed by the real parser and not run, by what marks it, and why."""

ALL = shown()
QPRIV = [each for each in ALL if each.words[0] == "qpriv" and not each.is_name]


def treatment(command: Command) -> str:
    """Return what is done with a command."""
    if command.words[0] != "qpriv":
        return {"make": "its recipe is looked up", "pip": "its extra is looked up"}.get(
            command.words[0], "its module or file is looked up"
        )
    if command.is_name:
        return "its name is looked up"
    return next((why for mark, why in NOT_RUN.items() if mark in command.text), "is run")


def test_the_pages_show_commands_of_every_kind():
    assert len(ALL) > 25 and len(QPRIV) > 12 and python_blocks()
    print(*(f"{each.page}: {each.text}: {treatment(each)}" for each in ALL), sep="\n")
    assert {each.words[0] for each in ALL} <= set(PROGRAMS)
    run = [each for each in QPRIV if treatment(each) == "is run"]
    assert len(run) >= 9
    assert {each.words[1] for each in run} >= {
        "fit",
        "attack",
        "study",
        "report",
        "compare",
        "plan",
    }


@pytest.mark.parametrize("command", [c for c in ALL if c.words[0] != "qpriv"], ids=str)
def test_what_is_no_command_of_ours_exists(command):
    program, *words = command.words
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if program == "make":
        assert recipe(words[0]) or words[0] == "ci"
    elif program == "pip":
        assert words[1].partition("[")[2].rstrip("]") in extras["optional-dependencies"]
    elif program == "python":
        found = find_spec(words[1]) if words[0] == "-m" else (ROOT / words[0]).is_file()
        assert found
    else:
        assert any("flwr" in each for each in extras["optional-dependencies"]["flower"])


@pytest.mark.parametrize(
    "command", [c for c in ALL if c.words[0] == "qpriv" and c.is_name], ids=str
)
def test_a_named_command_exists(command, capsys):
    assert command.words[1] in COMMANDS
    if len(command.words) > 2:
        with pytest.raises(SystemExit):
            main([*command.words[1:], "--help"])
        assert f"qpriv {command.words[1]} {command.words[2]}" in capsys.readouterr().out


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a small release, certificates and a finished run in it."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        data = ["--data=SLAKE", f"--data.root={write_patients(folder / 'slake', train=60)}"]
        fit = ["fit", "--config=tiny/vqa.yaml", *data, "--data.victim_share=0.2", *STEP, PROBES]
        main([*fit, "--trainer.default_root_dir=runs/vqa-20260101-000000"])
        make_certificates(folder / "certs", clients=2, hosts=["localhost"])
        (folder / "runs" / "latest").mkdir(exist_ok=True)
        yield folder


class Parsed(Exception):
    """What was typed has been understood."""


@pytest.fixture
def parsing_alone(monkeypatch):
    """Let a command end where it has been parsed."""
    original = CommandParser.parse_args

    def parse(self, *given):
        original(self, *given)
        raise Parsed

    monkeypatch.setattr(CommandParser, "parse_args", parse)


def filled(words: list[str], place: Path) -> list[str]:
    """Put what is there in the place of what the pages leave open."""
    run = str(place / "runs" / "vqa-20260101-000000")
    left_open = {"--config": "tiny/vqa.yaml", "--ckpt_path": f"{run}/checkpoints/best.ckpt"}
    example = {"/data/slake": str(place / "slake"), "RUN": run, "runs/*": run}
    if words[0] in ("fit", "predict") and "--config" not in words:
        kind = ["--data", "VQAv2"] if words[0] == "predict" else []
        words = [words[0], "--config", "tiny/vqa.yaml", *kind, *words[1:]]
    pairs = zip(["", *words], words, strict=False)
    made = [left_open[before] if w == "..." else example.get(w, w) for before, w in pairs]
    return [word.replace("runs/latest/vqa", run) for word in made]


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in QPRIV if treatment(c) != "is run"], ids=str)
def test_a_long_command_is_parsed(command, place, parsing_alone, capsys):
    words = filled(command.words[1:], place)
    if words[0] == "prepare":
        with pytest.raises(Parsed):
            main([*words, "--debug"])
        return
    with pytest.raises(SystemExit) as leaving:
        main([*words, "--print_config"])
    told = capsys.readouterr()
    assert not leaving.value.code, told.err
    assert "model:" in told.out


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in QPRIV if treatment(c) == "is run"], ids=str)
def test_a_command_runs(command, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    carry_out(command.words[1:], place)
    assert "Failed" not in capsys.readouterr().out


def carry_out(words: list[str], place: Path) -> None:
    """Run a command in a step or two, in a folder of its own where it writes a run."""
    words = filled(words, place)
    if words[0] == "study":
        main([*words, "--fast", "--jobs", "1"])
    elif words[0] == "attack":
        slake = ["--data=SLAKE", f"--data.root={place / 'slake'}", "--data.victim_share=0.2"]
        main([*words, *slake, *STEP, PROBES])
    elif words[0] == "fit":
        only_trains = "SLAKE" in words and "--data.victim_share" not in words
        drawn = [] if "SLAKE" in words else SMALL["VQAModule"]
        main([*words, *drawn, *STEP, *([] if only_trains else [PROBES])])
    else:
        main(words)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["demo", "study", "docvqa"])
def test_what_make_runs_runs(target, place, monkeypatch):
    monkeypatch.chdir(place)
    (line,) = recipe(target)
    program, *words = line.split()
    assert program == "qpriv"
    carry_out(words, place)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "text"), python_blocks())
def test_shown_python_runs(page, text, tmp_path, monkeypatch):
    import lightning as L

    monkeypatch.chdir(tmp_path)
    exec(compile(text, page, "exec"), {"L": L})
