"""`Result`: one measured figure. Everything logged, tabled or plotted is one."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypedDict, TypeVar

from qpriv.key import Key, Measured, Scalar
from qpriv.lines import read_lines, record_lines

__all__ = ("CLOCK_FILE", "Key", "Result", "Scalar", "append_results", "read_results", "stamp")

Status = Literal["ok", "failed", "skipped", "not applicable"]
M = TypeVar("M", bound=Measured)


@dataclass(frozen=True, kw_only=True)
class Result(Measured):
    """One figure with all that is needed to trust it; see `Measured` for what else it says.

    Args:
        value: The figure; None where it failed or does not apply (see ``status``).
        unit: ``dB``, ``tokens``, ``bytes``, or empty for shares in [0, 1].
        ci: Lower and upper end of the 95 % interval, or None where there is none.
        clustered_by: What the interval draws as a whole, from the outside in: ``image group``,
            ``person and image group``; empty where each row is drawn by itself or not recorded.
        status: ``ok``, or why ``value`` is None.
        note: One sentence for the reader, such as ``short attacker``.
        prompt: Template of the question the model was asked, where the figure depends on it.
    """

    value: float | None
    unit: str = ""
    ci: tuple[float, float] | None = None
    clustered_by: str = ""
    status: Status = "ok"
    note: str = ""
    prompt: str = ""

    @property
    def figure(self) -> object:
        """Return what two measurements of one figure must agree in."""
        return self.value, self.status

    @property
    def varies(self) -> bool:
        """Return whether it is of the machine: no two measurements of times and memory agree."""
        return self.unit == "s" or "memory" in self.name


class Circumstances(TypedDict):
    """Under what a run measures; see the fields of `Result` of the same names."""

    seed: int
    policy: str
    paradigm: str
    channel: str
    defence: str


def stamp(
    results: Iterable[M],
    *,
    epoch: int | None,
    seed: int,
    policy: str,
    paradigm: str,
    channel: str,
    defence: str,
    measured_by: str = "",
) -> list[M]:
    """Attach to results or curves when and under what they were measured.

    A result that names a channel keeps it: it was read from another one than the run's own.

    >>> given = {"seed": 0, "policy": "off", "paradigm": "split", "channel": "up@4"}
    >>> (result,) = stamp([Result(name="a", value=1.0, n=1)], epoch=2, defence="none", **given)
    >>> result.epoch, result.paradigm, result.channel
    (2, 'split', 'up@4')
    """
    return [
        replace(
            result,
            epoch=epoch,
            seed=seed,
            policy=policy,
            paradigm=paradigm,
            channel=result.channel or channel,
            defence=defence,
            measured_by=result.measured_by or measured_by,
        )
        for result in results
    ]


CLOCK_FILE = "clock.jsonl"
"""Results of a run that are times: no two runs have the same."""


def append_results(path: Path, results: Iterable[Result]) -> None:
    """Append results to a ``.jsonl`` file, one a line, and force them to the disk.

    There is one line a key, seed and epoch: a line that the same probe or module wrote before is
    replaced, as when a run goes on, and what is there already is not written twice.

    Raises:
        DataError: If somebody else measured another value of the same figure, or the file holds
            a line that is no result; names both.
    """
    record_lines(path, list(results), Result)


def read_results(path: Path) -> list[Result]:
    """Read a ``.jsonl`` file of results.

    A last line without its newline is what a killed run leaves behind; it is not a result.

    Raises:
        DataError: If a complete line is not a `Result`; names the file and the line.
    """
    return read_lines(path, Result)
