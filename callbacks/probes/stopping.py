"""`stoppable`: SIGTERM stops a running attack, not only the next training step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import lightning as L
from lightning.pytorch.utilities.exceptions import SIGTERMException


@contextmanager
def stoppable(trainer: L.Trainer) -> Iterator[None]:
    """Let SIGTERM raise in the body, as Ctrl-C does.

    The trainer only checks for SIGTERM between batches. An attack may run for an hour until then,
    and schedulers send SIGKILL after a minute. Stopping at once loses nothing: finished items are cached.

    Raises:
        SIGTERMException: In the body, when the signal comes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread alone
        return

    def stop(number: int, frame: FrameType | None) -> None:
        launcher = trainer.strategy.launcher
        if launcher is not None:
            launcher.kill(signal.Signals(number))  # the processes that this one has started
        raise SIGTERMException

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
