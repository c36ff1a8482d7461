"""`Study`: a grid of fits over seeds, read from YAML and checked before anything runs."""

import difflib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from qpriv.errors import ConfigError
from qpriv.result import read_results

_FIGURE = re.compile(r"\{(?P<stage>[\w.-]+):(?P<name>[\w./-]+)\}")


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One point of a stage's grid.

    Args:
        name: Ending of the cell's name.
        overrides: Arguments of the command line beside the stage's.
        tags: What it varies and its policy label does not say; shown in the report.
        minutes: Stated cost where it differs from the stage's.
    """

    name: str
    overrides: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    minutes: float | None = None


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``qpriv fit``, or a grid of them.

    Args:
        name: Name of the stage; its runs lie in ``<name>[-<variant>]-seed<n>``.
        config: Configurations of the fit, one or several, the later before the earlier; relative
            to the study's own file.
        minutes: Stated cost of one run, in minutes on two cores that it shares with the study's
            other jobs, for the forecast.
        needs: Stages that must be done before, in the same seed.
        overrides: Arguments of the command line. ``{teacher}`` is the run folder of that stage in
            the same seed, ``{student:val/ratio_mean}`` a figure it measured last, ``{seed}`` the
            seed.
        tags: What the stage varies and its policy label does not say; shown in the report.
        variants: The grid; without one the stage is a single run in each seed.
    """

    name: str
    config: str | tuple[str, ...]
    minutes: float
    needs: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    variants: tuple[Variant, ...] = ()

    @property
    def configs(self) -> tuple[str, ...]:
        """Return the configurations, however many there are."""
        return (self.config,) if isinstance(self.config, str) else self.config


class Study(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole study.

    Args:
        name: Shown in the report.
        seeds: Every stage runs once in each.
        stages: In an order in which each stage follows what it needs.
        jobs: Runs at a time, where the user does not say it: what fits two cores best.
        budget_minutes: What the study may cost; a longer forecast is warned of.
    """

    name: str
    seeds: tuple[int, ...]
    stages: tuple[Stage, ...]
    jobs: int = 1
    budget_minutes: float | None = None


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Args:
        stage: Name of its stage.
        name: Name of stage and variant.
        seed: Its seed.
        configs: Configuration files.
        overrides: Arguments in which ``{seed}`` and the folders are filled in.
        folders: Run folders of the stages before it, by name.
        needs: Names of the cells it needs.
        tags: What a report must know beside the policy label.
        minutes: Stated cost.
        folder: Its run folder.
    """

    stage: str
    name: str
    seed: int
    configs: tuple[Path, ...]
    overrides: tuple[str, ...]
    needs: tuple[str, ...]
    tags: dict[str, str]
    minutes: float
    folder: Path
    folders: dict[str, Path]

    @property
    def key(self) -> str:
        """Return the name of the run: stage, variant and seed."""
        return self.folder.name

    def arguments(self) -> list[str]:
        """Return the command line of the run, after ``qpriv``; reads the figures it names.

        Raises:
            ConfigError: If a stage did not measure a figure.
        """
        return [
            "fit",
            *(f"--config={config}" for config in self.configs),
            f"--seed_everything={self.seed}",
            f"--trainer.default_root_dir={self.folder}",
            "--ckpt_path=auto",  # goes on where a killed run stopped
            *(_FIGURE.sub(self._figure, text) for text in self.overrides),
        ]

    def _figure(self, named: re.Match[str]) -> str:
        """Return the last figure of a stage before."""
        stage, name = named["stage"], named["name"]
        results = self.folders[stage] / "results.jsonl"
        found = read_results(results) if results.is_file() else []
        values = [r.value for r in found if r.name == name and r.value is not None]
        if not values:
            raise ConfigError(
                f"{stage} measured no {name}", where=str(results), remedy=f"run {stage} first"
            )
        return f"{values[-1]:.4g}"

    @property
    def digest(self) -> str:
        """Return a digest of all that says what the run does."""
        contents = [config.read_bytes() for config in self.configs]
        told = self.overrides, self.seed, contents
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def read_study(path: Path) -> Study:
    """Read and check a study.

    Raises:
        ConfigError: If the file is missing, not YAML, holds unknown keys or types, or names
            stages, needs or configurations that do not exist.
    """
    if not path.is_file():
        raise ConfigError("there is no such study", where=str(path), remedy="check --config")
    try:
        study = msgspec.yaml.decode(path.read_bytes(), type=Study)
    except msgspec.DecodeError as error:
        raise ConfigError(str(error), where=str(path), remedy=_nearest(str(error))) from error
    for problem, remedy in _problems(study, path.parent):
        raise ConfigError(problem, where=str(path), remedy=remedy)
    return study


def cells(study: Study, config_folder: Path, out: Path) -> list[Cell]:
    """Return every run of a study, seed by seed, each after what it needs.

    Args:
        study: The study.
        config_folder: Folder of the study's file; configurations are relative to it.
        out: Folder that holds the run folders.

    Raises:
        ConfigError: If an override names a placeholder that is no stage before it.
    """
    made: list[Cell] = []
    for seed in study.seeds:
        folders: dict[str, Path] = {}
        for stage in study.stages:
            for variant in stage.variants or (None,):
                cell = _cell(stage, variant, seed, folders, config_folder, out)
                folders[cell.name] = cell.folder
                made.append(cell)
    return made


def _cell(
    stage: Stage,
    variant: Variant | None,
    seed: int,
    folders: dict[str, Path],
    config_folder: Path,
    out: Path,
) -> Cell:
    name = f"{stage.name}-{variant.name}" if variant else stage.name
    folder = out / f"{name}-seed{seed}"
    overrides = stage.overrides + (variant.overrides if variant else ())
    minutes = variant.minutes if variant and variant.minutes is not None else stage.minutes
    return Cell(
        stage=stage.name,
        name=name,
        seed=seed,
        configs=tuple((config_folder / config).resolve() for config in stage.configs),
        overrides=tuple(_filled(text, seed, folders) for text in overrides),
        needs=tuple(folders[need].name for need in stage.needs),
        tags=stage.tags | (variant.tags if variant else {}),
        minutes=minutes,
        folder=folder,
        folders=dict(folders),
    )


def _filled(text: str, seed: int, folders: dict[str, Path]) -> str:
    """Fill in ``{seed}`` and ``{stage}``; other braces are left to the configuration."""
    filled = text.replace("{seed}", str(seed))
    for stage, folder in folders.items():
        filled = filled.replace(f"{{{stage}}}", str(folder))
    for named in _FIGURE.finditer(filled):
        if named["stage"] not in folders:
            raise ConfigError(
                f"{named[0]} names {named['stage']}, which is no stage before it",
                remedy="choose one of " + ", ".join(folders),
            )
    return filled


def _problems(study: Study, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a study, and what to do about it."""
    if not study.seeds or not study.stages:
        yield "the study has no seeds or no stages", "give at least one of each"
    if len(set(study.seeds)) < len(study.seeds):
        yield f"seeds {list(study.seeds)} repeat", "give each seed once"
    if study.jobs < 1:
        yield f"jobs is {study.jobs}", "choose 1 or more"
    known: list[str] = []
    for stage in study.stages:
        names = [f"{stage.name}-{v.name}" for v in stage.variants] or [stage.name]
        for name in names:
            if name in known:
                yield f"stage {name} is there twice", "rename one of them"
            known.append(name)
        for need in stage.needs:
            if need not in known:
                near = difflib.get_close_matches(need, known, 1)
                advice = f"did you mean {near[0]}?" if near else "put it before"
                yield f"stage {stage.name} needs {need}, which is no stage before it", advice
        for config in stage.configs:
            if not (folder / config).is_file():
                yield f"stage {stage.name}: there is no {config}", "paths start at the study's file"
        if stage.minutes <= 0:
            yield f"stage {stage.name} costs {stage.minutes} minutes", "state more than 0"


def _nearest(message: str) -> str:
    """Suggest a key where the decoder met one it does not know."""
    known = {name for kind in (Study, Stage, Variant) for name in kind.__struct_fields__}
    quoted = message.split("`")
    near = difflib.get_close_matches(quoted[1], known, 1) if len(quoted) > 1 else []
    return f"did you mean {near[0]}?" if "unknown field" in message and near else "correct the file"
