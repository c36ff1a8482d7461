"""Where a run's figures go: a file that is the truth, and dashboards that tell nobody."""

import json
import logging
import math
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import wandb
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.logger import rank_zero_experiment
from lightning.pytorch.utilities import rank_zero_only

from qpriv.errors import ConfigError
from qpriv.io import write_atomic

logger = logging.getLogger(__name__)


class JsonLogger(Logger):
    """Appends every step's figures to ``metrics.jsonl``: the source of truth of a run.

    A line that an earlier process of the run has written is not written twice.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.folder = Path(folder)
        self._before: set[str] | None = None

    @property
    def name(self) -> str:
        """Return nothing: checkpoints lie right in the run folder."""
        return ""

    @property
    def version(self) -> str:
        """Return nothing, like `name`."""
        return ""

    @property
    def save_dir(self) -> str:
        """Return the run folder."""
        return str(self.folder)

    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, *args: object, **kwargs: object
    ) -> None:
        """Do nothing: ``config.yaml`` holds all settings."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append a line."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # JSON knows no NaN: a reader would take the line for broken
        values = {n: v if math.isfinite(v) else None for n, v in metrics.items()}
        line = json.dumps({"epoch": int(values.pop("epoch", 0) or 0), "step": step, **values})
        path = self.folder / "metrics.jsonl"
        if self._before is None:
            self.rewind(math.inf)  # what a killed process left behind
            self._before = set(path.read_text().splitlines()) if path.is_file() else set()
        if line not in self._before:
            with path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    @rank_zero_only
    def rewind(self, step: float) -> None:
        """Drop the lines from a step on: a resumed run writes them again."""
        path = self.folder / "metrics.jsonl"
        if not path.is_file():
            return
        # a line without its newline is what a killed run leaves behind
        lines = [line for line in path.read_text().splitlines(keepends=True) if line[-1] == "\n"]
        kept = [line for line in lines if (json.loads(line)["step"] or 0) < step]
        self._before = None
        write_atomic(path, "".join(kept).encode())


class PrivateWandbLogger(WandbLogger):
    """Weights & Biases without a word about machine, user, paths, code, console or command line.

    Offline unless ``mode`` says otherwise. The settings are made here and not in a configuration
    file: handed over by one, they would put the run online behind the logger's back.

    Args:
        folder: The run folder; the run lies in ``wandb`` below it.
        project: Project of the run.
        mode: ``offline``, or ``online``, which uploads every figure and no picture or text.

    Raises:
        ConfigError: If the run did not become offline although it was asked to.
    """

    def __init__(
        self,
        folder: str | Path = ".",
        project: str = "qpriv",
        mode: Literal["offline", "online"] = "offline",
    ) -> None:
        # wandb falls back to a temporary folder where this one does not exist
        Path(folder).mkdir(parents=True, exist_ok=True)
        super().__init__(
            name=Path(folder).name,
            save_dir=folder,
            project=project,
            offline=mode == "offline",
            log_model=False,
            settings=private_settings(mode),
        )
        # the parent hands it over in any case, and every run would begin with a warning of it
        self._wandb_init.pop("anonymous", None)
        self.mode = mode
        self._lost = False

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:  # noqa: ANN401 - the parent's type
        """Return the run, made at the first call, with epochs as the axis of what attacks log."""
        fresh = self._experiment is None
        run = super().experiment
        if fresh and self.mode == "offline" and not run.offline:
            run.finish(exit_code=1)
            raise ConfigError(
                "the W&B run is online", remedy="unset WANDB_MODE, or --run.wandb off"
            )
        if fresh:
            run.define_metric("epoch")
            for name in ("attack/*", "val/*"):
                run.define_metric(name, step_metric="epoch")
        return run

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log figures; where W&B's own process has died, say so once and let the run go on."""
        if self._lost:
            return
        try:
            super().log_metrics(metrics, step)
        except (OSError, wandb.Error) as error:
            self._lost = True
            logger.warning("W&B is lost (%s); metrics.jsonl goes on", error)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the run, so that the next one of this process is a run of its own."""
        if self._experiment is None:
            return
        try:
            super().finalize(status)
            self._experiment.finish(exit_code=0 if status == "success" else 1)
        except (OSError, wandb.Error) as error:
            logger.warning("W&B is lost (%s); metrics.jsonl is complete", error)
        self._experiment = None
        # W&B's own log is never uploaded, but it tells the paths of this machine
        for log in Path(self.save_dir or ".").glob("wandb/*/logs/debug*.log"):
            log.unlink()

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Log the settings, without the paths of this machine."""
        super().log_hyperparams(_shareable(params))


class PrivateCSVLogger(CSVLogger):
    """``metrics.csv``, and the settings beside it without the paths of this machine."""

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace | None = None) -> None:
        """Log the settings, without the paths of this machine."""
        super().log_hyperparams(_shareable(params or {}))


class PrivateTensorBoardLogger(TensorBoardLogger):
    """TensorBoard without the name of the machine, which its files carry in their names."""

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:  # noqa: ANN401 - the parent's type
        """Return the writer, made at the first call."""
        with _nameless_machine():
            return super().experiment

    @rank_zero_only
    def log_hyperparams(
        self,
        params: dict[str, Any] | Namespace,
        metrics: dict[str, Any] | None = None,
        step: int | None = None,
    ) -> None:
        """Log the settings, without the paths of this machine."""
        super().log_hyperparams(_shareable(params), metrics, step)


@contextmanager
def _nameless_machine() -> Iterator[None]:
    """Let TensorBoard's writer ask for the machine's name, and learn nothing."""
    from tensorboard.summary.writer import event_file_writer  # type: ignore[import-untyped]

    known = event_file_writer.socket
    event_file_writer.socket = Namespace(gethostname=lambda: "redacted")
    try:
        yield
    finally:
        event_file_writer.socket = known


def refuse_open(listed: Iterable[Logger]) -> None:
    """Refuse Lightning's own W&B logger, whose ``settings:`` put a run online unasked.

    Raises:
        ConfigError: If a plain `WandbLogger` is among them.
    """
    if any(isinstance(each, WandbLogger) and not _is_private(each) for each in listed):
        raise ConfigError(
            "WandbLogger tells W&B of this machine, and its settings can put the run online",
            where="trainer.logger",
            remedy="leave it out: --run.wandb offline (or online) logs to W&B",
        )


def _is_private(logger: Logger) -> bool:
    return isinstance(logger, PrivateWandbLogger)


def _shareable(params: dict[str, Any] | Namespace) -> dict[str, Any]:
    settings = params if isinstance(params, dict) else vars(params)
    return {key: without_paths(value) for key, value in settings.items()}


def private_settings(mode: Literal["offline", "online"]) -> wandb.Settings:
    """Return settings under which a run holds what is logged and nothing else."""
    return wandb.Settings(
        mode=mode,
        console="off",
        disable_git=True,
        disable_code=True,
        save_code=False,
        disable_job_creation=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
        host="redacted",
        program="qpriv",
        silent=True,
    )


def without_paths(value: Any) -> Any:  # noqa: ANN401 - settings nest
    """Return settings in which every path of this machine is reduced to its last part.

    >>> without_paths({"model": {"backbone": "/home/ada/llava", "rank": 4}})
    {'model': {'backbone': 'llava', 'rank': 4}}
    """
    if isinstance(value, dict):
        return {key: without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_paths(inner) for inner in value]
    if isinstance(value, str) and (Path(value).is_absolute() or Path(value).exists()):
        return Path(value).name
    return value
