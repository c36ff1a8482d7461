"""Where the runs of a study are run: in this process, or several at once in processes of their own.

Small models do not fill a machine: two runs of one thread each end sooner than two of two threads
one after the other.
"""

import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path
from typing import ParamSpec, TypeVar

from qpriv.io import write_atomic

from .config import Trial

Fit = Callable[[list[str]], None]
P = ParamSpec("P")
T = TypeVar("T")

_STOPPED = (130, 143)  # exit codes of a program that was stopped by Ctrl-C or SIGTERM


class InlineExecutor(Executor):
    """Runs what it is given at once, in this thread."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return what is already done."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # Ctrl-C too: the future raises it where it is asked
            future.set_exception(error)
        return future


def workers(jobs: int) -> Executor:
    """Return what runs that many fits at once; each of several has its share of the cores."""
    if jobs == 1:
        return InlineExecutor()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    return ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), initializer=_set_up, initargs=(threads,)
    )


def attempt(fit: Fit, cell: Trial, log: Path | None = None) -> str:
    """Run a fit; return why it failed, or an empty string, and keep the traceback.

    Args:
        fit: Runs ``qpriv`` with these arguments; raises, or exits with a code, where it fails.
        cell: The run.
        log: Where everything that this process prints goes from now on.

    Raises:
        KeyboardInterrupt: If the user stopped it.
    """
    arguments: list[str] = []
    try:
        if log is not None:
            _print_to(log)
        arguments += cell.arguments()
        fit(arguments)
        return ""
    except SystemExit as leaving:
        if isinstance(leaving.__context__, KeyboardInterrupt) or leaving.code in _STOPPED:
            raise KeyboardInterrupt from leaving  # the trainer turns Ctrl-C into an exit
        reason = f"it ended with exit code {leaving.code}" if leaving.code else ""
        story = traceback.format_exc()
    except Exception as error:  # whatever a run dies of, the others go on
        reason = f"{type(error).__name__}: {error}"
        story = traceback.format_exc()
    if reason:
        write_atomic(cell.folder / "failed.txt", f"qpriv {' '.join(arguments)}\n{story}".encode())
    return reason


def _set_up(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Leave no run behind when the study itself is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _print_to(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
