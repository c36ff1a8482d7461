"""`run_study`: every run of a grid, one after the other; stopped and started again at will."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from qpriv.errors import ConfigError

from ..evidence import Evidence
from ..report import write_report
from ..run_folder import CellRecord, read_run
from ..text import format_evidence
from .config import Cell, Study, cells, read_study
from .forecast import Forecast

Fit = Callable[[list[str]], None]
Echo = Callable[[str], None]

_INTERRUPTED = 130  # exit code of a program that was stopped by Ctrl-C
# a report is rewritten when its making would take at most this share of the time
_REPORT_SHARE = 0.1


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What says that a run is finished (``done.json``).

    Args:
        minutes: How long it took.
        digest: Digest of its configuration and arguments.
    """

    minutes: float
    digest: str


@dataclass
class Outcome:
    """What became of a study.

    Args:
        done: Keys of the finished runs, those of an earlier start included.
        failed: Why runs failed, by key.
        blocked: Runs that need a failed one.
        report: The page, or None where there is nothing to show.
    """

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: list[str] = field(default_factory=list)
    report: Path | None = None

    @property
    def exit_code(self) -> int:
        """Return 0 where every run is done, else 1."""
        return 1 if self.failed or self.blocked else 0


def run_study(config: Path, out: Path, fit: Fit, *, echo: Echo = print) -> Outcome:
    """Run what is not yet done of a study, and write its report.

    A finished run is skipped; one that was killed goes on from its last checkpoint; one that
    fails is told of, and the runs that do not need it go on. Ctrl-C stops the study: the same
    command continues it.

    Args:
        config: The study's YAML.
        out: Folder that holds the run folders, ``report.html`` and ``results.jsonl``.
        fit: Runs ``qpriv`` with these arguments; raises, or exits with a code, where it fails.
        echo: Where progress is told.

    Raises:
        ConfigError: If the study cannot work, or differs from what was run in ``out`` before.
        KeyboardInterrupt: If the user stopped it.
    """
    study = read_study(config)
    runner = _Runner(study, cells(study, config.parent, out), out, fit, echo)
    return runner.run()


class _Runner:
    def __init__(self, study: Study, grid: Sequence[Cell], out: Path, fit: Fit, echo: Echo) -> None:
        self.study, self.grid, self.out, self.fit, self.echo = study, grid, out, fit, echo
        self.outcome = Outcome()
        self.forecast = Forecast(grid, {c.key: m for c in grid if (m := _minutes_done(c))})
        self._report_cost, self._reported_at = 0.0, time.monotonic()

    def run(self) -> Outcome:
        self._announce()
        try:
            for number, cell in enumerate(self.grid, start=1):
                self._one(number, cell)
        except KeyboardInterrupt:
            self._report(even_if_soon=True)
            self.echo("Stopped. The same command goes on where this one was.")
            raise
        self._report(even_if_soon=True)
        self._conclude()
        return self.outcome

    def _announce(self) -> None:
        budget = self.study.budget_minutes
        self.echo(f"Study {self.study.name}: {len(self.grid)} runs, in minutes on this machine:")
        self.echo(self.forecast.table())
        if budget is not None and self.forecast.whole > budget:
            self.echo(f"That is over the budget of {budget:g} minutes.")

    def _one(self, number: int, cell: Cell) -> None:
        head = f"[{number}/{len(self.grid)}] {cell.key}"
        missing = [need for need in cell.needs if need not in self.outcome.done]
        if cell.key in self.forecast.observed:
            self.outcome.done.append(cell.key)
            self.echo(f"{head}: done before")
        elif missing:
            self.outcome.blocked.append(cell.key)
            self.echo(f"{head}: left out, needs {', '.join(missing)}")
        else:
            self.echo(f"{head}: starts, about {self.forecast.left:.0f} minutes left in all")
            self._fit(head, cell)
            self._report()

    def _fit(self, head: str, cell: Cell) -> None:
        started = time.monotonic()
        _describe(self.study, cell)
        reason = _reason_of_failure(self.fit, cell)
        minutes = (time.monotonic() - started) / 60
        if reason:
            self.outcome.failed[cell.key] = reason
            self.echo(f"{head}: failed, {reason} (see {cell.folder / 'failed.txt'})")
            return
        self.outcome.done.append(cell.key)
        self.forecast.observed[cell.key] = minutes
        done = Done(minutes=minutes, digest=cell.digest)
        _write(cell.folder / "done.json", msgspec.json.encode(done))
        self.echo(f"{head}: done in {minutes:.1f} minutes")

    def _report(self, *, even_if_soon: bool = False) -> None:
        now = time.monotonic()
        soon = self._report_cost > _REPORT_SHARE * (now - self._reported_at)
        folders = self._measured
        if not folders or (soon and not even_if_soon):
            return
        self.outcome.report = write_report(folders, self.out)
        self._reported_at = time.monotonic()
        self._report_cost = self._reported_at - now

    @property
    def _measured(self) -> list[Path]:
        return [c.folder for c in self.grid if (c.folder / "results.jsonl").is_file()]

    def _conclude(self) -> None:
        outcome = self.outcome
        self.echo(format_evidence(Evidence.of(read_run(folder) for folder in self._measured)))
        total = len(self.grid)
        self.echo(f"{len(outcome.done)} of {total} runs are done.")
        for key, reason in outcome.failed.items():
            self.echo(f"failed: {key}: {reason}")
        if outcome.blocked:
            self.echo(f"left out: {', '.join(outcome.blocked)}")


def _minutes_done(cell: Cell) -> float | None:
    """Return what a finished run took, or None where it is not finished.

    Raises:
        ConfigError: If it was run with other settings.
    """
    path = cell.folder / "done.json"
    if not path.is_file():
        return None
    done = msgspec.json.decode(path.read_bytes(), type=Done)
    if done.digest != cell.digest:
        raise ConfigError(
            f"{cell.key} was run with other settings",
            where=str(cell.folder),
            remedy="give another --out, or remove this folder to run it again",
        )
    return done.minutes


def _describe(study: Study, cell: Cell) -> None:
    """Write what a report must know of the run beside its results."""
    record = CellRecord(study=study.name, stage=cell.stage, tags=cell.tags)
    _write(cell.folder / "cell.json", msgspec.json.encode(record))


def _reason_of_failure(fit: Fit, cell: Cell) -> str:
    """Run a fit; return why it failed, or an empty string, and keep the traceback."""
    arguments: list[str] = []
    try:
        arguments += cell.arguments()
        fit(arguments)
        return ""
    except SystemExit as leaving:
        if isinstance(leaving.__context__, KeyboardInterrupt) or leaving.code == _INTERRUPTED:
            raise KeyboardInterrupt from leaving  # the trainer turns Ctrl-C into an exit
        reason = f"it ended with exit code {leaving.code}" if leaving.code else ""
        story = traceback.format_exc()
    except Exception as error:  # whatever a run dies of, the others go on
        reason = f"{type(error).__name__}: {error}"
        story = traceback.format_exc()
    if reason:
        _write(cell.folder / "failed.txt", f"qpriv {' '.join(arguments)}\n{story}".encode())
    return reason


def _write(path: Path, content: bytes) -> None:
    """Write a file that is whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.part")
    draft.write_bytes(content)
    draft.replace(path)
