"""`run_study`: every run of a grid, one or several at a time; stopped and started again at will."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from qpriv.errors import ConfigError
from qpriv.io import lock_dir, write_atomic
from qpriv.reporting.evidence import Evidence
from qpriv.reporting.report import write_report
from qpriv.reporting.run_folder import CellRecord, read_run
from qpriv.reporting.text import format_evidence

from .config import Study, Trial, cells, read_study
from .dry_run import dry_run
from .forecast import Forecast
from .workers import Fit, attempt, workers

Echo = Callable[[str], None]

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


def run_study(
    config: Path,
    out: Path,
    fit: Fit,
    *,
    jobs: int | None = None,
    dry_run_probes: Path | None = None,
    echo: Echo = print,
) -> Outcome:
    """Run what is not yet done of a study, and write its report.

    A finished run is skipped; one that was killed goes on from its last checkpoint; one that
    fails is told of, and the runs that do not need it go on. Ctrl-C stops the study: the same
    command continues it.

    Args:
        config: The study's YAML.
        out: Folder that holds the run folders, ``report.html`` and ``results.jsonl``.
        fit: Runs ``qpriv`` with these arguments; raises, or exits with a code, where it fails.
        jobs: Runs at a time; the study's own number where None. Several run in processes of
            their own, share the cores, and print to ``log.txt`` in their run folders.
        dry_run_probes: Make a `dry_run` with these attackers; None runs the study itself.
        echo: Where progress is told.

    Raises:
        ConfigError: If the study cannot work, differs from what was run in ``out`` before, is at
            work there in another process, or a process of its was killed.
        KeyboardInterrupt: If the user stopped it.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs is {jobs}", remedy="choose 1 or more")
    study = read_study(config)
    if dry_run_probes is not None:
        study = dry_run(study, dry_run_probes)
    grid = cells(study, config.parent, out)
    return _Runner(study, grid, out, fit, jobs or study.jobs, echo).run()


@dataclass(frozen=True)
class _Started:
    """A run that is on its way."""

    head: str
    cell: Trial
    at: float


class _Runner:
    def __init__(
        self, study: Study, grid: Sequence[Trial], out: Path, fit: Fit, jobs: int, echo: Echo
    ) -> None:
        self.study, self.grid, self.out, self.fit = study, grid, out, fit
        self.jobs, self.echo = jobs, echo
        self.outcome = Outcome()
        self.running: dict[Future[str], _Started] = {}
        done = {c.key: m for c in grid if (m := _minutes_done(c))}
        self.forecast = Forecast(grid, done, jobs)
        self._report_cost, self._reported_at = 0.0, time.monotonic()

    def run(self) -> Outcome:
        lock_dir(self.out)
        self._announce()
        try:
            with workers(self.jobs) as pool:
                self._all(pool)
        except KeyboardInterrupt:
            self._report(even_if_soon=True)
            self.echo("Stopped. The same command goes on where this one was.")
            raise
        except BrokenProcessPool as error:
            raise ConfigError(
                "the process of a run was killed: is the memory full?",
                where=", ".join(run.cell.key for run in self.running.values()),
                remedy="the same command goes on; give fewer --jobs",
            ) from error
        self._report(even_if_soon=True)
        self._conclude()
        return self.outcome

    def _announce(self) -> None:
        budget = self.study.budget_minutes
        self.echo(f"Study {self.study.name}: {len(self.grid)} runs, in minutes on this machine:")
        self.echo(self.forecast.table(budget))
        if budget is not None and self.forecast.whole > budget:
            self.echo(f"That is over the budget of {budget:g} minutes.")

    def _all(self, pool: Executor) -> None:
        """Start each run as soon as there is room and what it needs is done."""
        waiting = list(enumerate(self.grid, start=1))
        while waiting or self.running:
            for item in list(waiting):
                if len(self.running) < self.jobs and self._is_settled(item[1]):
                    waiting.remove(item)
                    self._one(*item, pool)
            for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                reason = future.result()
                self._conclude_run(self.running.pop(future), reason)
                self._report()

    def _is_settled(self, cell: Trial) -> bool:
        """Return whether it is known of all that a run needs if it is done."""
        outcome = self.outcome
        known = {*outcome.done, *outcome.failed, *outcome.blocked}
        return known.issuperset(cell.needs)

    def _one(self, number: int, cell: Trial, pool: Executor) -> None:
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
            _describe(self.study, cell)
            started = _Started(head, cell, time.monotonic())
            log = cell.folder / "log.txt" if self.jobs > 1 else None
            self.running[pool.submit(attempt, self.fit, cell, log)] = started

    def _conclude_run(self, run: _Started, reason: str) -> None:
        cell, minutes = run.cell, (time.monotonic() - run.at) / 60
        if reason:
            self.outcome.failed[cell.key] = reason
            self.echo(f"{run.head}: failed, {reason} (see {cell.folder / 'failed.txt'})")
            return
        self.outcome.done.append(cell.key)
        self.forecast.observed[cell.key] = minutes
        done = Done(minutes=minutes, digest=cell.digest)
        write_atomic(cell.folder / "done.json", msgspec.json.encode(done))
        self.echo(f"{run.head}: done in {minutes:.1f} minutes")

    def _report(self, *, even_if_soon: bool = False) -> None:
        now = time.monotonic()
        soon = self._report_cost > _REPORT_SHARE * (now - self._reported_at)
        folders = self._measured
        if not folders or (soon and not even_if_soon):
            return
        try:
            self.outcome.report = write_report(folders, self.out)
        except Exception as error:  # hours of runs must not end with the page about them
            if even_if_soon:
                raise
            self.echo(f"no report for now: {type(error).__name__}: {error}")
        self._reported_at = time.monotonic()
        self._report_cost = self._reported_at - now

    @property
    def _measured(self) -> list[Path]:
        busy = {run.cell.key for run in self.running.values()}  # may be in the middle of a line
        finished = [c.folder for c in self.grid if c.key not in busy]
        return [folder for folder in finished if (folder / "results.jsonl").is_file()]

    def _conclude(self) -> None:
        outcome = self.outcome
        self.echo(format_evidence(Evidence.of(read_run(folder) for folder in self._measured)))
        total = len(self.grid)
        self.echo(f"{len(outcome.done)} of {total} runs are done.")
        for key, reason in outcome.failed.items():
            self.echo(f"failed: {key}: {reason}")
        if outcome.blocked:
            self.echo(f"left out: {', '.join(outcome.blocked)}")


def _minutes_done(cell: Trial) -> float | None:
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


def _describe(study: Study, cell: Trial) -> None:
    """Write what a report must know of the run beside its results."""
    record = CellRecord(
        study=study.name, stage=cell.name, tags=cell.tags, claim_families=study.claim_families
    )
    write_atomic(cell.folder / "cell.json", msgspec.json.encode(record))
