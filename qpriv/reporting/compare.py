"""`compare_runs`: two runs side by side, such as one with a defence and one without."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from qpriv.key import AttackSetting, Key, apart
from qpriv.result import Result

from .compared import Compared, side_by_side
from .estimate import Estimate, combine
from .quantities import quantity
from .run_folder import Run, read_run

_PLACES = frozenset({"trainer.default_root_dir", "ckpt_path", "run.name", "run.root"})
"""Settings in which any two runs differ."""


@dataclass(frozen=True)
class Comparison:
    """Two runs.

    Args:
        one: Name of the first run's folder.
        other: Name of the second's.
        figures: Every figure of either, those with a value in both runs first.
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
        note = "Intervals are 95 %. Of one seed each, those of differences take A and B as independent."
        return "\n".join([*lines, "", *side_by_side(self.figures), note])


def compare_runs(one: Path, other: Path) -> Comparison:
    """Return two run folders side by side: the last figure of each name, and the difference.

    Raises:
        DataError: If a folder is missing, or cannot be read.
    """
    runs = read_run(one), read_run(other)
    found = _compared(*(_last(run, _shared(runs)) for run in runs))
    figures = tuple(sorted(found, key=lambda row: not row.by_both))
    settings = [_flat(yaml.safe_load(run.config) or {}) for run in runs]
    return Comparison(
        str(one), str(other), figures, _differing(*settings), tuple(_warnings(*runs, figures))
    )


def _shared(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the parts of a key that have one value in each run, blank.

    Two runs are compared because they differ in these, such as in policy or defence; where one run
    holds figures of several, as under two defences, each is compared with its like.
    """
    usual = Key("")
    names = ("policy", "paradigm", "defence", "stage", "tags")
    keys = [{result.key for result in run.results} for run in runs]
    return {
        name: getattr(usual, name)
        for name in names
        if all(len({getattr(key, name) for key in own}) <= 1 for own in keys)
    }


def _last(run: Run, shared: Mapping[str, Any]) -> dict[Key, Result]:
    """Return the figures after the last epoch each was measured in, by key.

    The channel a run was trained with is the run's own, like its policy, and is blank.
    """
    trained = {r.channel for r in run.results if not r.name.startswith("attack/")}
    latest: dict[Key, Result] = {}
    for result in run.results:
        own = len(trained) == 1 and result.channel in trained
        key = replace(result.key, **shared, channel="" if own else result.channel)
        known, epoch = latest.get(key), result.epoch
        if known is None or known.epoch is None or epoch is None or epoch >= known.epoch:
            latest[key] = result
    return latest


def _compared(ours: dict[Key, Result], theirs: dict[Key, Result]) -> Iterator[Compared]:
    """Yield every figure of either run beside its like."""
    alike = _alike(ours, theirs)
    others = set(alike.values())
    groups: dict[Key, list[Key]] = defaultdict(list)
    for key in (*ours, *theirs):
        groups[_whatever(key)].append(key)
    pairs: list[tuple[Key | None, Key | None]] = [(key, alike.get(key)) for key in ours]
    pairs += [(None, key) for key in theirs if key not in others]
    for pair in pairs:
        keys = [key for key in pair if key]
        group = groups[_whatever(keys[0])]
        names = apart(key.setting for key in group)
        several = len({key.channel for key in group}) > 1
        told = dict.fromkeys(
            ", ".join(filter(None, (key.setting.phrase(names), key.channel if several else "")))
            for key in keys
        )
        one, other = (
            side[key] if key else None for side, key in zip((ours, theirs), pair, strict=True)
        )
        yield Compared(
            keys[0].name,
            keys[0].dataset,
            ", ".join(filter(None, (*_under(keys[0]), " | ".join(told)))),
            one,
            other,
            _difference(one, other),
            (_floor(ours, pair[0]), _floor(theirs, pair[1])),
        )


def _floor(side: Mapping[Key, Result], key: Key | None) -> Result | None:
    """Return what a figure of a run is to be held against, under the setting most like its own."""
    if key is None or not quantity(key.name).baseline:
        return None
    wanted = replace(key, name=quantity(key.name).baseline, setting=AttackSetting(), channel="")
    found = [each for each in side if replace(each, setting=AttackSetting(), channel="") == wanted]

    def likeness(each: Key) -> tuple[bool, int]:
        return each.channel == key.channel, len(set(each.setting.parts) & set(key.setting.parts))

    return side[max(found, key=likeness)] if found else None


def _alike(ours: Iterable[Key], theirs: Iterable[Key]) -> dict[Key, Key]:
    """Return for figures of one run those of the other that they are to be held against.

    A figure that each run has once, read from another channel or under another setting of the
    attack, is the like of the other.
    """
    known = set(theirs)
    alike = {key: key for key in ours if key in known}
    for told in (_wherever, _whatever):
        left, right = defaultdict(list), defaultdict(list)
        for key in ours:
            left[told(key)].append(key)
        for key in theirs:
            right[told(key)].append(key)
        taken = set(alike.values())
        for group, keys in left.items():
            free = [key for key in keys if key not in alike]
            others = [key for key in right.get(group, []) if key not in taken]
            if len(free) == len(others) == 1:
                alike[free[0]] = others[0]
    return alike


def _wherever(key: Key) -> Key:
    return replace(key, channel="")


def _whatever(key: Key) -> Key:
    return replace(key, channel="", setting=AttackSetting())


def _under(key: Key) -> list[str]:
    """Return what of policy, paradigm and the like was not the same for the whole run."""
    usual = Key("")
    names = ("policy", "paradigm", "defence", "stage")
    told = [getattr(key, name) for name in names if getattr(key, name) != getattr(usual, name)]
    return [*told, *(f"{name} {value}" for name, value in key.tags)]


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
    if any(a.key.setting != b.key.setting for a, b in pairs):
        found.append("some attacks had other settings")
    if any(a.n != b.n for a, b in pairs):
        found.append("some figures rest on different numbers of images")
    failed = {r.name for pair in pairs for r in pair if r.status == "failed"}
    return found + [f"{name} failed in a run" for name in sorted(failed)]
