"""`Study`: a grid of runs over seeds, read from YAML and checked before anything runs."""

import difflib
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from qpriv.errors import ConfigError
from qpriv.reporting.claims import check_families, topics
from qpriv.result import read_results

Command = Literal["fit", "documents train", "documents score"]
"""What a stage runs."""

_FIGURE = re.compile(r"\{(?P<stage>[\w.-]+):(?P<name>[\w./-]+)\}")
_FOLDERS = re.compile(r"\{(?P<stage>[\w.-]+)(?P<many>/\*|/seeds)?\}")


Value = str | int | float | bool | None


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
    """One ``qpriv fit``, another command that leaves a run folder, or a grid of them.

    Overrides may hold placeholders:

    - ``{seed}``: the seed;
    - ``{teacher}``: the run folder of that stage in the same seed; of a stage with a grid, that of
      the run whose settings agree with this one's, wherever both grids have them;
    - ``{half/*}``: the folders of all runs of that stage that agree, divided by commas;
      ``{baseline/seeds}``: of all that agree, in every seed;
    - ``{student:val/ratio_mean}``: the figure that the stage measured last.

    A run waits for every run whose folder or figure it names.

    Args:
        name: Name of the stage; its runs lie in ``<name>[-<variant>]-seed<n>``.
        command: What it runs.
        config: Configurations of the runs, one or several, the later before the earlier; relative
            to the study's own file.
        minutes: Stated cost of one run, in minutes on two cores that it shares with the study's
            other jobs, for the forecast.
        needs: Stages that must be done before, in the same seed, beside those it names.
        overrides: Arguments of the command line.
        tags: What the stage varies and its policy label does not say; shown in the report.
        variants: Points of a grid, one by one; without them or ``grid`` the stage is a single run.
        grid: Settings with their values: a run for each combination, named and tagged by them.
    """

    name: str
    command: Command = "fit"
    config: str | tuple[str, ...] = ()
    minutes: float
    needs: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    variants: tuple[Variant, ...] = ()
    grid: dict[str, tuple[Value, ...]] = {}

    @property
    def configs(self) -> tuple[str, ...]:
        """Return the configurations, however many there are."""
        return (self.config,) if isinstance(self.config, str) else self.config

    @property
    def points(self) -> tuple[Variant, ...]:
        """Return the runs of the stage: its variants, or the combinations of its grid."""
        return self.variants or tuple(map(_point, self.combinations))

    @property
    def combinations(self) -> tuple[dict[str, Value], ...]:
        """Return the combinations of the grid; none without a grid."""
        if not self.grid:
            return ()
        return tuple(
            dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())
        )


def _point(settings: dict[str, Value]) -> Variant:
    """Return the variant of one combination of a grid.

    >>> _point({"resolution": 0.5, "recipe.patience": None}).name
    'resolution=0.5-patience=null'
    """
    texts = {key: _text(value) for key, value in settings.items()}
    short = {key.rpartition(".")[2]: text for key, text in texts.items()}
    return Variant(
        name="-".join(f"{key}={text}" for key, text in short.items()),
        overrides=tuple(f"--{key}={text}" for key, text in texts.items()),
        tags={key.replace("_", " "): text for key, text in short.items()},
    )


def _text(value: Value) -> str:
    """Return a value as YAML writes it."""
    return str(yaml.safe_dump(value)).removesuffix("...\n").strip()


class Study(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole study.

    Args:
        name: Shown in the report.
        seeds: Every stage runs once in each.
        stages: In an order in which each stage follows what it needs.
        jobs: Runs at a time, where the user does not say it: what fits two cores best.
        budget_minutes: What the study may cost; a longer forecast is warned of.
        claim_families: Topics of the claims that are judged together, by the family's name (Holm's
            adjustment); claims of all other topics are one family.
    """

    name: str
    seeds: tuple[int, ...]
    stages: tuple[Stage, ...]
    jobs: int = 1
    budget_minutes: float | None = None
    claim_families: dict[str, tuple[str, ...]] = {}


@dataclass(frozen=True)
class Trial:
    """One run of a study.

    Args:
        stage: Name of its stage.
        command: What it runs.
        name: Name of stage and variant.
        seed: Its seed.
        configs: Configuration files.
        overrides: Arguments in which ``{seed}`` and the folders are filled in.
        needs: Keys of the runs it waits for.
        tags: What a report must know beside the policy label.
        minutes: Stated cost.
        folder: Its run folder.
        folders: Run folders of the stages before it, by name.
        settings: Its point of the stage's grid.
    """

    stage: str
    command: Command
    name: str
    seed: int
    configs: tuple[Path, ...]
    overrides: tuple[str, ...]
    needs: tuple[str, ...]
    tags: dict[str, str]
    minutes: float
    folder: Path
    folders: dict[str, Path]
    settings: dict[str, Value]

    @property
    def key(self) -> str:
        """Return the name of the run: stage, variant and seed."""
        return self.folder.name

    def arguments(self) -> list[str]:
        """Return the command line of the run, after ``qpriv``; reads the figures it names.

        Raises:
            ConfigError: If a stage did not measure a figure.
        """
        own = {
            "fit": [
                f"--seed_everything={self.seed}",
                f"--trainer.default_root_dir={self.folder}",
                "--ckpt_path=auto",  # goes on where a killed run stopped
            ],
            "documents train": [f"--seed={self.seed}", f"--out={self.folder}"],
            "documents score": [f"--out={self.folder}"],
        }
        return [
            *self.command.split(),
            *(f"--config={config}" for config in self.configs),
            *own[self.command],
            *(_FIGURE.sub(self._figure, text) for text in self.overrides),
        ]

    def agrees_with(self, settings: dict[str, Value]) -> bool:
        """Return whether the run has the same settings wherever both grids have them."""
        shared = self.settings.keys() & settings.keys()
        return all(self.settings[key] == settings[key] for key in shared)

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
        told: tuple[object, ...] = (self.overrides, self.seed, contents)
        if self.command != "fit":
            told = (self.command, *told)
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
    try:
        check_families(study.claim_families, topics())
    except ConfigError as error:
        raise ConfigError(error.what, where=str(path), remedy=error.remedy) from error
    for problem, remedy in _problems(study, path.parent):
        raise ConfigError(problem, where=str(path), remedy=remedy)
    return study


def cells(study: Study, config_folder: Path, out: Path) -> list[Trial]:
    """Return every run of a study, seed by seed, each after what it needs of the same seed.

    Args:
        study: The study.
        config_folder: Folder of the study's file; configurations are relative to it.
        out: Folder that holds the run folders.

    Raises:
        ConfigError: If an override names a placeholder that is no stage before it, or a stage of
            which no or several runs agree.
    """
    made: list[Trial] = []
    for seed in study.seeds:
        earlier: list[Trial] = []
        for stage in study.stages:
            combinations = stage.combinations or ({},) * max(1, len(stage.points))
            points: Sequence[Variant | None] = stage.points or (None,)
            for point, settings in zip(points, combinations, strict=True):
                names = _Names(settings, seed, study.seeds, tuple(earlier))
                earlier.append(_cell(stage, point, names, config_folder, out))
        made += earlier
    return made


def _cell(
    stage: Stage, variant: Variant | None, names: "_Names", config_folder: Path, out: Path
) -> Trial:
    name = f"{stage.name}-{variant.name}" if variant else stage.name
    overrides = stage.overrides + (variant.overrides if variant else ())
    minutes = variant.minutes if variant and variant.minutes is not None else stage.minutes
    filled = tuple(names.fill(text) for text in overrides)
    for need in stage.needs:
        names.find(need)
    return Trial(
        stage=stage.name,
        command=stage.command,
        name=name,
        seed=names.seed,
        configs=tuple((config_folder / config).resolve() for config in stage.configs),
        overrides=filled,
        needs=tuple(dict.fromkeys(names.used)),
        tags=stage.tags | (variant.tags if variant else {}),
        minutes=minutes,
        folder=out / f"{name}-seed{names.seed}",
        folders={cell.name: cell.folder for cell in names.earlier},
        settings=names.settings,
    )


class _Names:
    """What the placeholders of one run stand for, and which runs they name.

    Args:
        settings: The run's point of its stage's grid.
        seed: Its seed.
        seeds: All seeds of the study.
        earlier: The runs of the same seed that stand before it.
    """

    def __init__(
        self,
        settings: dict[str, Value],
        seed: int,
        seeds: tuple[int, ...],
        earlier: tuple[Trial, ...],
    ) -> None:
        self.settings, self.seed, self.seeds, self.earlier = settings, seed, seeds, earlier
        self.used: list[str] = []

    def fill(self, text: str) -> str:
        """Fill in ``{seed}`` and folders; other braces are left to the configuration.

        Raises:
            ConfigError: If a placeholder names no stage before this one.
        """
        for named in _FIGURE.finditer(text):
            self.find(named["stage"], shown=named[0])
        return _FOLDERS.sub(self._folders, text.replace("{seed}", str(self.seed)))

    def find(self, name: str, shown: str = "") -> list[Trial]:
        """Return the runs of a stage that agree, or the one run of that name, and note them.

        Raises:
            ConfigError: If there is none.
        """
        found = [cell for cell in self.earlier if cell.name == name] or [
            cell for cell in self.earlier if cell.stage == name and cell.agrees_with(self.settings)
        ]
        if not found:
            names = dict.fromkeys([cell.name for cell in self.earlier])
            raise ConfigError(
                f"{shown or name} names {name}, which is no stage before it",
                remedy="choose one of " + ", ".join(names),
            )
        self.used += [cell.key for cell in found]
        return found

    def _folders(self, named: re.Match[str]) -> str:
        known = {name for cell in self.earlier for name in (cell.name, cell.stage)}
        if named["stage"] not in known:
            return named[0]
        found = self.find(named["stage"])
        if named["many"] is None and len(found) > 1:
            raise ConfigError(
                f"{named[0]} stands for {len(found)} runs",
                remedy=f"write {{{named['stage']}/*}} for all of them",
            )
        folders = [cell.folder for cell in found]
        if named["many"] == "/seeds":
            ending = f"-seed{self.seed}"
            stems = [folder.with_name(folder.name.removesuffix(ending)) for folder in folders]
            folders = [s.with_name(f"{s.name}-seed{n}") for n in self.seeds for s in stems]
            self.used += [folder.name for folder in folders]
        return ",".join(map(str, folders))


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
        if stage.variants and stage.grid:
            yield f"stage {stage.name} has variants and a grid", "give one of them"
        if any(not values for values in stage.grid.values()):
            yield f"stage {stage.name} has a setting without values", "give at least one value"
            continue
        if (stage.command == "documents score") != (not stage.configs):
            yield f"stage {stage.name}: {stage.command} and config do not fit", _CONFIG_RULE
        names = [f"{stage.name}-{point.name}" for point in stage.points] or [stage.name]
        for name in names:
            if name in known or names.count(name) > 1:
                yield f"stage {name} is there twice", "rename one of them"
        for need in stage.needs:
            if need not in known:
                near = difflib.get_close_matches(need, known, 1)
                advice = f"did you mean {near[0]}?" if near else "put it before"
                yield f"stage {stage.name} needs {need}, which is no stage before it", advice
        for config in stage.configs:
            if not (folder / config).is_file():
                yield f"stage {stage.name}: there is no {config}", "paths start at the study's file"
        known += [*names, stage.name]
        if stage.minutes <= 0:
            yield f"stage {stage.name} costs {stage.minutes} minutes", "state more than 0"


_CONFIG_RULE = "give config to fit and documents train, and none to documents score"


def _nearest(message: str) -> str:
    """Suggest a key where the decoder met one it does not know."""
    known = {name for kind in (Study, Stage, Variant) for name in kind.__struct_fields__}
    quoted = message.split("`")
    near = difflib.get_close_matches(quoted[1], known, 1) if len(quoted) > 1 else []
    return f"did you mean {near[0]}?" if "unknown field" in message and near else "correct the file"
