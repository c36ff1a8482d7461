"""What a person hears: at once when asking for help, and of every probe as it starts and ends."""

import logging
import resource
import subprocess
import sys
from pathlib import Path

import lightning as L
from lightning.pytorch.utilities import rank_zero_info

from cli.telling import quiet

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
