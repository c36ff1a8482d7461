"""Reading run folders: what one fit left behind, and what is wrong with it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from qpriv.curve import CURVES_FILE, Curve, read_curves
from qpriv.errors import DataError
from qpriv.histogram import HISTOGRAMS_FILE, Histogram, read_histograms
from qpriv.key import AttackSetting, Key, Scalar
from qpriv.lines import distinct
from qpriv.result import CLOCK_FILE, Result, read_results
from qpriv.split.traffic import EXCHANGED, PASSED, SENT

Line = TypeVar("Line")


class Medium(msgspec.Struct, frozen=True, kw_only=True):
    """One picture of a run, as a line of ``media.jsonl`` describes it.

    Args:
        kind: ``reconstruction``, ``kept_tokens`` or another name of a gallery.
        path: The PNG, relative to the run folder.
        caption: What a reader sees below the picture.
        alt: What a reader who cannot see the picture is told.
        policy: Label of the pruning policy.
        paradigm: Label of the paradigm.
        channel: Label of the channel.
        defence: Label of the defence.
        setting: Setting of the attack that drew it.
        epoch: Epoch after which it was drawn.
        seed: Seed of the run.
        private: Whether it shows private data; such pictures never leave the machine by default.
    """

    kind: str
    path: str
    caption: str
    alt: str
    policy: str = ""
    paradigm: str = "centralized"
    channel: str = ""
    defence: str = "none"
    setting: dict[str, Scalar] = {}
    epoch: int | None = None
    seed: int | None = None
    private: bool = True

    def key(self, tags: Mapping[str, str]) -> Key:
        """Return what tells pictures of one kind apart, in all runs whose tags are these."""
        return Key(
            self.kind,
            policy=self.policy,
            paradigm=self.paradigm,
            channel=self.channel,
            defence=self.defence,
            tags=tuple(sorted(tags.items())),
            setting=AttackSetting.given(self.setting),
        )


class CellRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a study wrote about one of its runs (``cell.json``).

    Args:
        study: Name of the study.
        stage: Name of the stage the run belongs to.
        tags: What the run varies and its policy label does not say, such as ``utility: random``.
        claim_families: Topics of the claims that are judged together, by the family's name.
    """

    study: str
    stage: str
    tags: dict[str, str] = {}
    claim_families: dict[str, tuple[str, ...]] = {}


@dataclass(frozen=True)
class Run:
    """One run folder, read.

    Args:
        folder: Where it lies.
        results: The figures of ``results.jsonl``, and the times of ``clock.jsonl``.
        metrics: The lines of ``metrics.jsonl``: epoch, step and named values.
        curves: The lines of ``curves.jsonl``.
        histograms: The lines of ``histograms.jsonl``.
        media: The pictures of ``media.jsonl`` whose file exists.
        config: Text of ``config.yaml``, or empty.
        stage: Name of the study's stage, or of the folder.
        tags: What a study says about the run, see `CellRecord`.
        claim_families: The study's families of claims, see `CellRecord`.
        problems: What a reader of the report must know: torn lines, missing pictures.
    """

    folder: Path
    results: tuple[Result, ...] = ()
    metrics: tuple[dict[str, Scalar], ...] = ()
    curves: tuple[Curve, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    media: tuple[Medium, ...] = ()
    config: str = ""
    stage: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    claim_families: dict[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the folder."""
        return self.folder.name

    @property
    def training_losses(self) -> tuple[Result, ...]:
        """Return the mean training loss of each epoch, from the steps in ``metrics.jsonl``."""
        epochs: dict[int, list[float]] = defaultdict(list)
        for line in self.metrics:
            epoch, loss = line.get("epoch"), line.get("train/loss", line.get("train/loss_step"))
            if isinstance(epoch, int) and isinstance(loss, int | float):
                epochs[epoch].append(loss)
        victim = next((result for result in self.results if result.policy), None)
        of_run = victim or Result(name="", value=None, n=0)
        return tuple(
            replace(
                of_run, name="train/loss", value=sum(losses) / len(losses), n=len(losses),
                unit="nats", epoch=epoch, ci=None, status="ok", note="n counts logged steps",
                prompt="", setting={}, attack={}, measured_by="",
            )
            for epoch, losses in sorted(epochs.items())
        )  # fmt: skip


def read_run(folder: Path) -> Run:
    """Read a run folder; files that a run did not (yet) write are simply empty.

    Raises:
        DataError: If the folder is missing, a complete line cannot be read, or two lines give one
            figure different values.
    """
    if not folder.is_dir():
        raise DataError(
            "there is no such run folder", where=str(folder), remedy="give folders made by qpriv"
        )
    results = folder / "results.jsonl"
    record = _read_record(folder / "cell.json")
    stage, tags = record.stage, record.tags
    listed = _read_lines(folder / "media.jsonl", Medium)
    missing = [medium for medium in listed if not (folder / medium.path).is_file()]
    problems = [f"{file.name} ends in half a line: the run was stopped" for file in _torn(folder)]
    problems += [f"the picture {medium.path} is listed but missing" for medium in missing]
    if not results.is_file():
        problems.append("no results.jsonl: nothing was measured yet")
    return Run(
        folder=folder,
        results=tuple(
            replace(_renamed(result), stage=stage, tags=tags)
            for file in (results, folder / CLOCK_FILE)
            if file.is_file()
            for result in distinct(read_results(file), _line_of(file))
        ),
        metrics=tuple(_read_lines(folder / "metrics.jsonl", dict[str, Scalar])),
        curves=tuple(
            replace(curve, stage=stage, tags=tags) for curve in read_curves(folder / CURVES_FILE)
        ),
        histograms=tuple(
            replace(each, stage=stage, tags=tags)
            for each in read_histograms(folder / HISTOGRAMS_FILE)
        ),
        media=tuple(medium for medium in listed if medium not in missing),
        config=_read_text(folder / "config.yaml"),
        stage=record.stage,
        tags=record.tags,
        claim_families=record.claim_families,
        problems=tuple(problems),
    )


def _renamed(result: Result) -> Result:
    """Return a result of an earlier version under the name it has today.

    ``bytes_up`` and ``bytes_down`` were three figures each: what a training sample sent, which
    they still are; what a pass would send; and what crossed for a private scene.
    """
    ways = {sent.name: way for way, sent in SENT.items()}
    if result.name not in ways:
        return result
    if result.note.startswith("would cross"):
        return replace(result, name=PASSED[ways[result.name]].name)
    if result.dataset and not result.note:
        return replace(result, name=EXCHANGED[ways[result.name]].name)
    return result


def _line_of(file: Path) -> Callable[[int], str]:
    return lambda number: f"{file}, line {number + 1}"


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """Return the run folders among ``folders``: themselves, or those inside them.

    The merged results beside a report are no run, and a link to a run is that run.

    Raises:
        DataError: If a folder is missing, or holds no run.
    """
    found: list[Path] = []
    for folder in folders:
        if not folder.is_dir():
            raise DataError("there is no such run folder", where=str(folder), remedy="check it")
        inside = sorted(path.parent for path in folder.rglob("results.jsonl"))
        runs = [path for path in inside if _is_run(path) and not _is_linked(path, folder)]
        runs = runs or [folder]
        if not _is_run(runs[0]):
            raise DataError(
                "the folder holds no run", where=str(folder), remedy="give a folder made by qpriv"
            )
        found += [run for run in runs if run not in found]
    return found


def _is_linked(path: Path, top: Path) -> bool:
    """Return whether there is a link between a folder and the one the search began in."""
    return path.resolve() != top.resolve() / path.relative_to(top)


def _is_run(folder: Path) -> bool:
    has_config, has_results, has_report = (
        (folder / name).is_file() for name in ("config.yaml", "results.jsonl", "report.html")
    )
    return has_config or (has_results and not has_report)


def _torn(folder: Path) -> list[Path]:
    """Return the ``.jsonl`` files whose last line was never finished."""
    files = [folder / f"{name}.jsonl" for name in ("results", "metrics", "media")]
    return [file for file in files if file.is_file() and _is_torn(file.read_bytes())]


def _is_torn(content: bytes) -> bool:
    return bool(content) and not content.endswith(b"\n")


def _read_lines(path: Path, kind: type[Line]) -> list[Line]:
    """Decode every complete line of a ``.jsonl`` file."""
    if not path.is_file():
        return []
    decoder = msgspec.json.Decoder(kind)
    lines = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            lines.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            raise DataError(
                f"cannot be read: {error}", where=f"{path}, line {number}", remedy="remove the line"
            ) from error
    return lines


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _read_record(path: Path) -> CellRecord:
    """Read what a study wrote; a run by itself is a stage by itself."""
    if not path.is_file():
        return CellRecord(study="", stage=path.parent.name)
    try:
        return msgspec.json.decode(path.read_bytes(), type=CellRecord)
    except msgspec.DecodeError as error:
        raise DataError(f"cannot be read: {error}", where=str(path), remedy="remove it") from error
