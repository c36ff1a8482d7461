"""What a person hears: at once when asking for help, and of every probe as it starts and ends."""

import logging
import resource
import subprocess
import sys
import traceback
from pathlib import Path

import lightning as L
import pytest
from lightning.pytorch.utilities import rank_zero_info

from callbacks.probes.probe import ProbeError
from cli.console import quiet
from cli.train import told_by_a_process
from qpriv.errors import ConfigError, QprivError

TRAINER = logging.getLogger("lightning.pytorch.utilities.rank_zero")


def test_help_takes_less_than_a_second():
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    command = [sys.executable, "-c", "from cli.main import main; main(['--help'])"]
    subprocess.run(command, check=True, capture_output=True)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 1


def test_callbacks_are_heard_and_the_trainers_own_talk_is_not():
    quiet()
    heard: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: heard.append(record.getMessage())
    TRAINER.addHandler(listener)
    TRAINER.setLevel(logging.INFO)
    try:
        rank_zero_info("fora: epoch 0, policy off: starts")
        own = str(Path(L.__file__).parent / "pytorch" / "trainer" / "setup.py")
        for level, text in ((logging.INFO, "Tip: buy our cloud"), (logging.WARNING, "no room")):
            TRAINER.handle(TRAINER.makeRecord(TRAINER.name, level, own, 1, text, (), None))
    finally:
        TRAINER.removeHandler(listener)
        TRAINER.setLevel(logging.NOTSET)
    assert heard == ["fora: epoch 0, policy off: starts", "no room"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConfigError("no GPU", where="--trainer", remedy="say cpu"), QprivError),
        (ProbeError("it failed\n  twice", where="fora", remedy="look"), QprivError),
        (OSError(28, "No space left on device"), OSError),
        (RuntimeError("gloo: Connection closed by peer"), RuntimeError),
        (KeyError("cut"), RuntimeError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_a_spawned_process_ended_with_is_known_from_its_traceback(error, kind):
    try:
        raise error
    except Exception:
        text = f"\n\n-- Process 1 terminated with the following error:\n{traceback.format_exc()}"
    told = told_by_a_process(text)
    assert type(told) is kind
    assert str(error).splitlines()[-1] in str(told)
