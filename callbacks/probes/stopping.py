"""`stoppable`: let SIGTERM stop a running attack at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import lightning as L
from lightning.pytorch.utilities.exceptions import SIGTERMException


@contextmanager
def stoppable(trainer: L.Trainer) -> Iterator[None]:
    """Make SIGTERM raise an exception in the body, as Ctrl-C does.

    The trainer only checks for SIGTERM between batches. An attack may run for an hour before the
    next batch, but schedulers send SIGKILL after a minute. Stopping at once loses nothing,
    because finished items are cached.

    Raises:
        SIGTERMException: In the body, when the signal arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return

    def stop(number: int, frame: FrameType | None) -> None:
        launcher = trainer.strategy.launcher
        if launcher is not None:
            launcher.kill(signal.Signals(number))  # stops the processes that this one started
        raise SIGTERMException

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
