"""A `qpriv fit` in a process of its own that dies at a named moment, in one of several ways."""

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import torch

import lightning_modules.evaluation
from callbacks import ForaProbe, MembershipProbe, SensitivityProbe
from callbacks.probes.cache import ProbeCache
from callbacks.runtime import checkpoint_io
from callbacks.runtime.checkpoint_io import AtomicCheckpointIO
from cli.loggers import JsonLogger
from cli.main import main
from cli.run import SaveRunConfig
from lightning_modules import SensitivityTeacher, VQAModule
from lightning_modules.predictor import PredictorModule
from lightning_modules.threshold_module import ThresholdModule
from qpriv.attacks.reconstruction.inverter import Inverter
from qpriv.models.cache import TensorStore
from qpriv.pruning.oracle import OracleSearch

Death = Literal["killed", "full disk", "terminated", "interrupted"]
EXIT_CODES: dict[Death, int] = {
    "killed": -signal.SIGKILL,
    "full disk": 2,
    "terminated": 128 + signal.SIGTERM,
    "interrupted": 128 + signal.SIGINT,
}


@dataclass(frozen=True)
class Place:
    """Where a process passes ``times`` or more in an epoch, and dies before or ``after`` a call."""

    owner: object
    name: str
    times: int = 1
    after: bool = False


PLACES = {
    "settings are written": Place(SaveRunConfig, "save_config"),
    "features are stored": Place(TensorStore, "write", 1),
    "a step begins": Place(VQAModule, "training_step", 2),
    "a step ends": Place(VQAModule, "on_train_batch_end", 2, after=True),
    "a figure is logged": Place(JsonLogger, "log_metrics", 3),
    "a validation begins": Place(VQAModule, "validation_step", 2),
    "results are written": Place(lightning_modules.evaluation, "append_results", 2, after=True),
    "a probe begins": Place(SensitivityProbe, "measure"),
    "an attacker learns": Place(Inverter, "forward", 2),
    "an attacker is done": Place(ForaProbe, "measure", after=True),
    "a shadow model begins": Place(MembershipProbe, "measure", 3),
    "an item is cached": Place(ProbeCache, "write", 2),
    "a probe publishes": Place(ProbeCache, "publish", 2),
    "a checkpoint is half written": Place(torch, "save", 1),
    "a checkpoint has two names": Place(checkpoint_io, "_keep_previous", 1, after=True),
    "a checkpoint is there": Place(AtomicCheckpointIO, "save_checkpoint", 1, after=True),
    "the adapter is exported": Place(VQAModule, "export", 1, after=True),
    "something is forced to the disk": Place(os, "fsync", 4),
}


STAGE_PLACES = {
    "a bag's step begins": Place(SensitivityTeacher, "training_step", 2),
    "a bag is validated": Place(SensitivityTeacher, "validation_step", 2),
    "the oracle searches": Place(OracleSearch, "search_batch", 2),
    "a ratio's step begins": Place(ThresholdModule, "training_step", 2),
    "a ratio is validated": Place(ThresholdModule, "validation_step", 2),
    "the predictor is exported": Place(PredictorModule, "export", 1, after=True),
}


@dataclass(frozen=True)
class End:
    """The ``number``-th time, from 1, that a process comes to a place, and what happens there."""

    place: str
    number: int = 1
    death: Death = "killed"


def start(args: Sequence[str], folder: Path, end: End | None) -> None:
    """Run a command in a folder, up to an end; its output goes to a file there."""
    # whatever has started the tests, such as a job in the background, may be deaf to Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    os.chdir(folder)
    output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1), os.dup2(output, 2)
    if end is not None:
        arm(end)
    main(args)


def arm(end: End) -> None:
    """Let this process meet its end."""
    place = (PLACES | STAGE_PLACES)[end.place]
    original: Callable[..., Any] = getattr(place.owner, place.name)
    times = 0

    @wraps(original)
    def last_time(*args: Any, **settings: Any) -> Any:
        nonlocal times
        times += 1
        # a disk that is full stays full
        due = times >= end.number if end.death == "full disk" else times == end.number
        if due and not place.after:
            if original is torch.save and hasattr(args[1], "flush"):
                args[1].write(b"PK\x03\x04 half a checkpoint"), args[1].flush()
            die(end.death)
        returned = original(*args, **settings)
        if due and place.after:
            die(end.death)
        return returned

    setattr(place.owner, place.name, last_time)


def die(death: Death) -> None:
    """Meet one's death: -9 says no word and closes nothing, the others are heard of."""
    if death == "full disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run")
    number = {"terminated": signal.SIGTERM, "interrupted": signal.SIGINT}.get(death, signal.SIGKILL)
    os.kill(os.getpid(), number)
    time.sleep(2)  # a step ends before it is heard; who does not listen goes on, and is found out
