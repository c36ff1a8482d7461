"""`StepClock`: time of the training steps, without validation and probes."""

import time

from qpriv.metrics.times import CPU_TIME, WALL_CLOCK
from qpriv.result import Result


class StepClock:
    """Adds up the wall-clock and CPU time of training steps, in seconds.

    Wall-clock time is what a user waits for. CPU time, over all threads of this process, is
    comparable between runs that shared a machine.
    """

    def __init__(self) -> None:
        self._wall, self._cpu, self._steps = 0.0, 0.0, 0
        self._started = (0.0, 0.0)

    def start(self) -> None:
        """Start the clock at the beginning of a step."""
        self._started = (time.monotonic(), time.process_time())

    def stop(self) -> None:
        """Stop the clock at the end of a step."""
        wall, cpu = self._started
        self._wall += time.monotonic() - wall
        self._cpu += time.process_time() - cpu
        self._steps += 1

    def results(self) -> list[Result]:
        """Return the times of the steps since the last call; empty if there were none."""
        wall, cpu, steps = self._wall, self._cpu, self._steps
        self._wall, self._cpu, self._steps = 0.0, 0.0, 0
        return [
            Result(
                name=own.name,
                value=seconds,
                n=steps,
                unit=own.unit,
                note=f"{what} of an epoch's steps",
            )
            for own, seconds, what in (
                (WALL_CLOCK, wall, "wall clock"),
                (CPU_TIME, cpu, "CPU time"),
            )
            if steps
        ]
