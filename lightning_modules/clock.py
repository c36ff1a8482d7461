"""`StepClock`: how long training itself takes, without validation and probes."""

import time

from qpriv.result import Result


class StepClock:
    """Adds up the wall-clock time of training steps."""

    def __init__(self) -> None:
        self._seconds, self._steps, self._started = 0.0, 0, 0.0

    def start(self) -> None:
        """Begin a step."""
        self._started = time.monotonic()

    def stop(self) -> None:
        """End a step."""
        self._seconds += time.monotonic() - self._started
        self._steps += 1

    def results(self) -> list[Result]:
        """Return ``train_seconds`` of the steps since the last call; nothing if there were none."""
        seconds, steps = self._seconds, self._steps
        self._seconds, self._steps = 0.0, 0
        note = "wall clock of an epoch's training steps"
        measured = Result(name="train_seconds", value=seconds, n=steps, unit="s", note=note)
        return [measured] if steps else []
