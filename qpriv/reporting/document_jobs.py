"""Trainings that each leave one file: those that are missing, one or several at a time."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

import msgspec

from qpriv.writing import write_whole

from .study.workers import workers


@dataclass(frozen=True)
class Job:
    """Work that is done when its file is there.

    Args:
        path: The file.
        work: Returns what it holds; must be picklable where several run at a time.
    """

    path: Path
    work: Callable[[], object]


def carry_out(jobs: Sequence[Job], at_once: int = 1) -> None:
    """Do what has no file yet, and say how long it will take; what is killed costs itself alone.

    Args:
        jobs: All work, in its order.
        at_once: How many run at a time, each in a process of its own if more than one.
    """
    missing = [job for job in jobs if not job.path.exists()]
    started, running = time.monotonic(), set[Future[None]]()
    with workers(at_once) as pool:
        for number, job in enumerate(missing, start=1):
            print(f"[{number}/{len(missing)}] {job.path.stem}: trains", flush=True)
            running.add(pool.submit(_leave, job))
            last = number == len(missing)
            if last or len(running) == at_once:
                when = ALL_COMPLETED if last else FIRST_COMPLETED
                ended, running = wait(running, return_when=when)
                for future in ended:
                    future.result()
                done = number - len(running)
                _say_left(time.monotonic() - started, done, len(missing) - done)


def _leave(job: Job) -> None:
    write_whole(job.path, msgspec.json.encode(job.work()))


def _say_left(seconds: float, done: int, left: int) -> None:
    if left:
        print(f"about {seconds / done * left / 60:.0f} minutes left", flush=True)
