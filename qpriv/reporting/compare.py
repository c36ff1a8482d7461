"""`compare_runs`: two runs side by side, such as one with a defence and one without."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from qpriv.result import Result

from .estimate import Estimate, combine
from .numbers import MISSING, interval, number
from .run_folder import Run, read_run

_PLACES = frozenset({"trainer.default_root_dir", "ckpt_path", "run.name", "run.root"})
"""Settings in which any two runs differ."""


@dataclass(frozen=True)
class Compared:
    """One figure in both runs.

    Args:
        name: Name of the result.
        dataset: What it was measured on.
        one: The first run's last figure, None where it has none.
        other: The second run's.
        difference: The second less the first, None where either has no value.
    """

    name: str
    dataset: str
    one: Result | None
    other: Result | None
    difference: Estimate | None


@dataclass(frozen=True)
class Comparison:
    """Two runs.

    Args:
        one: Name of the first run's folder.
        other: Name of the second's.
        figures: Every figure of either.
        settings: What their configurations say differently, by key.
        warnings: Why the two may not compare.
    """

    one: str
    other: str
    figures: tuple[Compared, ...]
    settings: dict[str, tuple[str, str]]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain types, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def __str__(self) -> str:
        """Return the comparison as text for a terminal."""
        lines = [f"A: {self.one}", f"B: {self.other}", ""]
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += ["settings that differ"] if self.settings else ["the settings are the same"]
        lines += [f"  {key}: {a} | {b}" for key, (a, b) in self.settings.items()]
        rows = [("figure", "A", "B", "B - A"), *map(_row, self.figures)]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        table = (
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows
        )
        note = "Intervals are 95 %. Of one seed each, those of differences take A and B as independent."
        return "\n".join([*lines, "", *(line.rstrip() for line in table), "", note])


def compare_runs(one: Path, other: Path) -> Comparison:
    """Return two run folders side by side: the last figure of each name, and the difference.

    Raises:
        DataError: If a folder is missing, or cannot be read.
    """
    runs = read_run(one), read_run(other)
    ours, theirs = (_last(run) for run in runs)
    keys = list(dict.fromkeys([*ours, *theirs]))
    figures = tuple(
        Compared(*key, ours.get(key), theirs.get(key), _difference(ours.get(key), theirs.get(key)))
        for key in keys
    )
    settings = [_flat(yaml.safe_load(run.config) or {}) for run in runs]
    return Comparison(
        str(one), str(other), figures, _differing(*settings), tuple(_warnings(*runs, figures))
    )


def _last(run: Run) -> dict[tuple[str, str], Result]:
    """Return the figures after the last epoch each was measured in, by name and data set."""
    latest: dict[tuple[str, str], Result] = {}
    for result in run.results:
        key, epoch = (result.name, result.dataset), result.epoch
        known = latest.get(key)
        if known is None or known.epoch is None or epoch is None or epoch >= known.epoch:
            latest[key] = result
    return latest


def _difference(one: Result | None, other: Result | None) -> Estimate | None:
    if one is None or other is None or one.value is None or other.value is None:
        return None
    return combine({one.seed: [(1.0, other), (-1.0, one)]})


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested settings by dotted key; a list is one setting."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{name}.")
        else:
            flat[name] = str(value)
    return flat


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    both = sorted(one.keys() | other.keys())
    pairs = {key: (one.get(key, "not set"), other.get(key, "not set")) for key in both}
    return {key: (a, b) for key, (a, b) in pairs.items() if a != b and key not in _PLACES}


def _warnings(one: Run, other: Run, figures: tuple[Compared, ...]) -> list[str]:
    found = [f"{run.name}: {problem}" for run in (one, other) for problem in run.problems]
    seeds = [
        sorted({str(r.seed) for r in run.results if r.seed is not None}) for run in (one, other)
    ]
    if seeds[0] != seeds[1]:
        found.append(f"seeds {', '.join(seeds[0])} and {', '.join(seeds[1])}: chance differs too")
    pairs = [(row.one, row.other) for row in figures if row.one and row.other]
    if not pairs:
        found.append("the runs share no figure")
    if any(a.epoch != b.epoch for a, b in pairs):
        found.append("some figures are of different epochs")
    if any(a.n != b.n for a, b in pairs):
        found.append("some figures rest on different numbers of images")
    failed = {r.name for pair in pairs for r in pair if r.status == "failed"}
    return found + [f"{name} failed in a run" for name in sorted(failed)]


def _row(row: Compared) -> tuple[str, str, str, str]:
    unit = next((r.unit for r in (row.one, row.other) if r), "")
    title = f"{row.name} ({row.dataset})" if row.dataset else row.name
    return title, _shown(row.one), _shown(row.other), _signed(row.difference, unit)


def _shown(result: Result | None) -> str:
    if result is None:
        return "not measured"
    if result.value is None:
        return result.status
    ends = f" {interval(result.ci, result.unit)}" if result.ci else ""
    return f"{number(result.value, result.unit)}{ends}"


def _signed(difference: Estimate | None, unit: str) -> str:
    if difference is None:
        return MISSING
    sign = "+" if difference.value > 0 else ""
    ends = f" {interval(difference.interval, unit)}" if difference.interval else ""
    return f"{sign}{number(difference.value, unit)}{ends}"
