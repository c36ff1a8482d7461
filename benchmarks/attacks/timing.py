"""`Pair`: an attack of this package and a plain loop for the same numbers, timed in one run."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Pair(Generic[T]):
    """Two ways to the same numbers.

    Args:
        attack: Which attack it belongs to.
        ours: What this package does.
        plain: What a reference does.
        says: The two in words, ours first.
        differ: By how much the two results differ; one number that should be small.
        rounds: How often each runs, in turns.
        promised: The ratio that is promised, or None.
    """

    attack: str
    ours: Callable[[], T]
    plain: Callable[[], T]
    says: str
    differ: Callable[[T, T], float]
    rounds: int = 3
    promised: float | None = None

    def run(self) -> str:
        """Time both in turns and return a line of a table."""
        seconds = [0.0, 0.0]
        results: list[T] = []
        for _ in range(self.rounds):
            results = []
            for side, function in enumerate((self.ours, self.plain)):
                began = time.process_time()
                results.append(function())
                seconds[side] += time.process_time() - began
        ours, plain = (each / self.rounds for each in seconds)
        promise = "" if self.promised is None else f" (promised {self.promised:g})"
        return (
            f"{self.attack:20} {ours:9.4f} s {plain:9.4f} s {plain / ours:8.1f}x{promise}  "
            f"differ by {self.differ(results[0], results[1]):.1e}: {self.says}"
        )
