"""`Progress`: a probe's progress, and the three metrics that its last line reports."""

import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from lightning.pytorch.utilities import rank_zero_info
from tqdm import tqdm

from qpriv.attacks.registry import attacks
from qpriv.metrics.sensitivity import AREA_VISIBLE, FACES_TOUCHED, TOKENS_KEPT
from qpriv.paradigms.ranks import rank
from qpriv.quantity import Quantity
from qpriv.result import Result

PATIENCE = 10.0
"""Seconds between two lines when the output is not a terminal."""

Watch = Callable[[int, int], None]
"""Receives the number of finished steps of the current item, and the total."""


def unwatched(done: int, total: int) -> None:
    """Ignore the progress."""


class Progress:
    """Reports the stage, the finished items and the estimated time left; see `line`.

    On a terminal, one line below the trainer's own is rewritten. Elsewhere, a plain line appears
    every ten seconds. Only the first process reports.

    Args:
        name: The probe's metric prefix.
        stages: Number of this process's items in each stage.
        deadline: `time.monotonic` at which the probe's time budget is over.
    """

    def __init__(self, name: str, stages: Sequence[int], deadline: float = math.inf) -> None:
        self.name, self.stages, self.deadline = name, stages, deadline
        self._item, self._items_done, self._share = "", 0, 0.0
        self._began = self._told = time.monotonic()
        on_terminal = sys.stderr.isatty() and rank() == 0
        self._bar = tqdm(bar_format="{desc}", leave=False, file=sys.stderr) if on_terminal else None

    def begin(self, item: str) -> None:
        """Start an item."""
        self._item, self._share = item, 0.0
        self._tell()

    def step(self, done: int, total: int) -> None:
        """Record that ``done`` of ``total`` steps of the current item are finished."""
        self._share = done / max(1, total)
        self._tell()

    def end(self) -> None:
        """Finish the current item."""
        self._items_done, self._share = self._items_done + 1, 0.0
        self._tell()

    def close(self) -> None:
        """Remove the progress line from the terminal."""
        if self._bar is not None:
            self._bar.close()

    def line(self, now: float) -> str:
        """Return the progress as one line.

        >>> progress = Progress("fora", [1, 2])
        >>> progress.begin("cut=4")
        >>> progress.step(150, 600)
        >>> progress.line(progress._began + 30).partition(", about")[0]
        'fora: stage 1 of 2, cut=4 25 %, 0 of 3 done'
        """
        whole = sum(self.stages)
        within = f" {self._share:.0%}".replace("%", " %") if self._share else ""
        told = [
            f"stage {self._stage} of {len(self.stages)}",
            f"{self._item}{within}",
            f"{self._items_done} of {whole} done",
        ]
        left = self._left(now)
        told += [f"about {_duration(left)} left"] if left is not None else []
        return f"{self.name}: {', '.join(told)}"

    @property
    def _stage(self) -> int:
        """Return the stage of the current item, from 1."""
        seen = 0
        for number, items in enumerate(self.stages, start=1):
            seen += items
            if self._items_done < seen:
                return number
        return len(self.stages)

    def _left(self, now: float) -> float | None:
        """Return the estimated seconds left, at most until the deadline; None before any step."""
        done = self._items_done + self._share
        if not done:
            return None
        pace = (now - self._began) / done
        return min(pace * (sum(self.stages) - done), max(0.0, self.deadline - now))

    def _tell(self) -> None:
        now = time.monotonic()
        if self._bar is not None:
            self._bar.set_description_str(self.line(now))
        elif now - self._told >= PATIENCE:
            self._told = now
            rank_zero_info(self.line(now))


def closing_figures(results: Iterable[Result], most: int = 3) -> str:
    """Return the strongest leaks and their baselines, for the last line of a probe.

    Of several results of one name (such as under several query policies) it reports the largest.

    Args:
        results: All results of the probe.
        most: Largest number of metrics.

    >>> auc = Result(name="attack/membership/auc", value=0.75, n=9)
    >>> closing_figures([auc, Result(name="attack/membership/blind_auc", value=0.62, n=9)])
    'Membership AUC 0.750 (blind baseline 0.620)'
    """
    finite = [r for r in results if r.value is not None and math.isfinite(r.value)]
    largest: dict[str, Result] = {}
    for result in finite:
        held = largest.get(result.name)
        if held is None or _value(result) > _value(held):
            largest[result.name] = result
    declared = {own.name: own for own in _declared()}
    floors = {own.baseline for own in declared.values()}
    leaks = [own for own in declared.values() if own.direction == "leak" and own.name in largest]
    # keep the strongest of several attackers that answer the same question
    strongest: dict[str, str] = {}
    for own in leaks:
        rival = strongest.setdefault(own.question or own.name, own.name)
        if _value(largest[own.name]) > _value(largest[rival]):
            strongest[own.question or own.name] = own.name
    told = [*strongest.values()]
    told += [n for n in largest if n not in floors and n not in {own.name for own in leaks}]
    return ", ".join(_figure(largest[name], declared, finite) for name in told[:most])


def _declared() -> list[Quantity]:
    """Return the quantities that probes measure, headline quantities first."""
    every = [TOKENS_KEPT, AREA_VISIBLE, FACES_TOUCHED]
    every += [own for attack in attacks() for own in attack.figures]
    return sorted(every, key=lambda own: (not own.question, not own.leading))


def _figure(result: Result, declared: dict[str, Quantity], results: Sequence[Result]) -> str:
    own = declared.get(result.name)
    name = own.short if own else result.name.rpartition("/")[2].replace("_", " ")
    floors = [r for r in results if own and r.name == own.baseline]
    alike = [r for r in floors if r.setting == result.setting] or floors
    unit = " dB" if result.unit == "dB" else ""
    digits = 1 if unit else 3
    beside = f" ({declared[alike[0].name].short} {_value(alike[0]):.{digits}f})" if alike else ""
    level = result.attack.get("chance")
    beside = beside or (f" (chance {float(level):.3f})" if level else "")
    return f"{name} {_value(result):.{digits}f}{unit}{beside}"


def _value(result: Result) -> float:
    return math.nan if result.value is None else result.value


def _duration(seconds: float) -> str:
    """Format a time with its unit.

    >>> _duration(9.6), _duration(150), _duration(9000)
    ('10 s', '2.5 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
