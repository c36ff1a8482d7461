"""``qpriv fit | validate | test | predict | attack``: LightningCLI by its public keywords."""

import logging
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import SIGTERMException
from tqdm import tqdm

# the imports let a configuration name these classes without their modules
import callbacks  # noqa: F401
import datamodules  # noqa: F401
import lightning_modules  # noqa: F401
import qpriv.pruning.controls
import qpriv.pruning.policy  # noqa: F401
from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.inventory import Inventory
from lightning_modules.base import TrainedOnly
from qpriv.errors import CheckpointError, ConfigError

from .attack import AttackTrainer
from .errors import Terminated, typed
from .loggers import refuse_open
from .parser import reading
from .run import SaveRunConfig, loggers, mark_latest, standard_callbacks
from .run_folder import Run, RunOptions, open_run

CONFIGS = Path(__file__).parent / "configs"


class QprivCLI(LightningCLI):
    """One run from a configuration: folder, loggers, checkpoints, and the command itself."""

    run: Run

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add where the run writes."""
        parser.add_class_arguments(RunOptions, "run")

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Return the commands, each with the arguments that do not stand on the command line."""
        return {**LightningCLI.subcommands(), "attack": {"model", "datamodule"}}

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:  # noqa: ANN401
        """Parse; a checkpoint's settings hold where neither configuration nor user gives one."""
        super().parse_arguments(parser, args)
        options = self.config[self.config.subcommand]
        self.run = open_run(
            RunOptions(**options.run.as_dict()),
            self.config.subcommand,
            config_name(args) or str(options.model.class_path).rpartition(".")[2],
            options.trainer.default_root_dir,
            options.get("ckpt_path"),
        )
        options.ckpt_path = self.run.ckpt_path
        if self.run.ckpt_path is None:
            return
        settings = stored_settings(Path(self.run.ckpt_path), options.model.class_path)
        subparser = self._parser(self.config.subcommand)
        subparser.set_defaults({"model": settings})
        super().parse_arguments(parser, args)
        self.config[self.config.subcommand].ckpt_path = self.run.ckpt_path

    def _parse_ckpt_path(self) -> None:
        # LightningCLI lets the checkpoint's settings replace what was typed; `parse_arguments`
        # has used them as defaults instead. The one private name of LightningCLI used here.
        pass

    def before_instantiate_classes(self) -> None:
        """Name the folder in the settings that are saved and given to the trainer."""
        self.config[self.subcommand].trainer.default_root_dir = str(self.run.folder)

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:  # noqa: ANN401
        """Build the trainer with the run's loggers, callbacks and checkpoints."""
        options = self.config_init[self.subcommand]
        given = options.trainer
        if not given.fast_dev_run:
            own = loggers(options.run, self.run.folder) if given.logger is not False else []
            listed = [each for each in _as_list(given.logger) if isinstance(each, Logger)]
            refuse_open(listed)
            kwargs["logger"] = [*own, *listed] or False
            self.save_config_kwargs = {"folder": str(self.run.folder)}
            if self.subcommand == "fit":
                standard = standard_callbacks(options.run, self.model, self.run.folder)
                self.trainer_defaults["callbacks"] = [Inventory(), *standard]
        refuse_spawned(given.strategy)
        kwargs["plugins"] = [AtomicCheckpointIO(), *_as_list(given.plugins)]
        try:
            return super().instantiate_trainer(**kwargs)
        except (MisconfigurationException, ValueError) as error:
            # no such device, strategy or precision: a mistake of the user's, told as one
            reason = " ".join(str(error).split())
            raise ConfigError(reason, where="--trainer", remedy="see fit --help") from error

    def before_fit(self) -> None:
        """Say where the run goes."""
        if self.trainer.is_global_zero:
            print(f"run folder: {self.run.folder}" + (" (goes on)" if self.run.resumed else ""))

    def after_fit(self) -> None:
        """Let later stages find this run by its name."""
        if self.trainer.is_global_zero and not getattr(self.trainer, "fast_dev_run", False):
            mark_latest(self.run.folder)
            if isinstance(self.model, TrainedOnly):
                print(self.model.how_to_load(self.run.folder))


def run(words: Sequence[str]) -> None:
    """Run a training command.

    Args:
        words: The command and its arguments.
    """
    quiet()
    try:
        _run(words)
    except SIGTERMException:
        raise Terminated from None
    except SystemExit as leaving:
        # the trainer has stopped cleanly at Ctrl-C, and leaves with a code of its own
        if leaving.code == 1:
            raise KeyboardInterrupt from None
        raise


def _run(words: Sequence[str]) -> None:
    args = [shipped(word) for word in words]
    check_yaml(args)
    QprivCLI(
        L.LightningModule,
        L.LightningDataModule,
        save_config_callback=SaveRunConfig,
        trainer_class=AttackTrainer,
        trainer_defaults={
            "use_distributed_sampler": False,
            "num_sanity_val_steps": 0,
            # `Inventory` tells it part by part
            "enable_model_summary": False,
            "log_every_n_steps": 10,
        },
        args=args,
        **reading(),
    )


def refuse_spawned(strategy: object) -> None:
    """Refuse strategies whose trained model is gone with the processes that trained it.

    Raises:
        ConfigError: If it is one of them.
    """
    if isinstance(strategy, str) and strategy.startswith(("ddp_spawn", "ddp_fork", "ddp_notebook")):
        raise ConfigError(
            f"{strategy} leaves the trained model in processes that end",
            where="--trainer.strategy",
            remedy="use ddp, which starts the command once more for each process",
        )


def quiet() -> None:
    """Silence what says nothing about the run: tips, device lists, deprecations of libraries."""
    os.environ.setdefault("WANDB_SILENT", "true")
    tell()
    logging.getLogger("lightning.fabric.utilities.seed").setLevel(logging.WARNING)
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(_is_worth_telling)
    for pattern in (
        r".*isinstance\(treespec, LeafSpec\).*",
        r".*is_gradient_checkpointing.*",
        r".*module\(s\) in eval mode at the start of training.*",
        r".*does not have many workers.*",
        r".*args parameter is intended to run from within Python.*",
        r".*smaller than the logging interval.*",
        r".*exists and is not empty.*",
        r"MatMul8bitLt: inputs will be cast.*",
        r".*callbacks used to create the checkpoint need to be provided.*",
        r".*The dirpath has changed from.*",
    ):
        warnings.filterwarnings("ignore", message=pattern)


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """Return whether a line is a warning, or comes from a callback and not from the trainer."""
    own = Path(L.__file__).parent in Path(record.pathname).parents
    return record.levelno >= logging.WARNING or not own


def tell() -> None:
    """Print what the suite itself logs, such as what was read and dropped, on the first process."""
    if int(os.environ.get("LOCAL_RANK", "0")):
        return
    for name in ("qpriv", "callbacks", "datamodules", "lightning_modules"):
        suite = logging.getLogger(name)
        suite.setLevel(logging.INFO)
        if not suite.handlers:
            suite.addHandler(_Told())


class _Told(logging.Handler):
    """Prints a message as it is, above a progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        word = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        tqdm.write(word + self.format(record), file=sys.stderr)


def shipped(word: str) -> str:
    """Return a configuration that comes with the package by its full path, other words as is."""
    flag, equals, value = word.rpartition("=")
    if not value.endswith((".yaml", ".yml")) or Path(value).is_file():
        return word
    inside = CONFIGS / value
    return f"{flag}{equals}{inside}" if inside.is_file() else word


def check_yaml(args: Sequence[str]) -> None:
    """Check the syntax of the configurations; the parser's own message does not name the file.

    Raises:
        ConfigError: If one is not YAML.
    """
    for name in typed(args, "--config") + typed(args, "-c"):
        if not Path(name).is_file():
            continue
        try:
            yaml.safe_load(Path(name).read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"not YAML: {reason}", where=name) from error


def config_name(args: Sequence[str]) -> str:
    """Return the name of the first configuration file, without folder and ending."""
    files = typed(args, "--config") + typed(args, "-c")
    return Path(files[0]).stem if files else ""


def stored_settings(path: Path, class_path: str | None) -> dict[str, Any]:
    """Return the model settings a checkpoint was trained with, as parser defaults.

    Raises:
        CheckpointError: If the checkpoint is of another model class, or cannot be read.
    """
    stored = AtomicCheckpointIO().load_checkpoint(path, map_location="cpu")
    values = dict(stored.get("hyper_parameters", {}))
    values.pop("_instantiator", None)
    trained = values.pop("_class_path", None)
    if trained is None:
        return {"class_path": class_path, "init_args": {}}
    if class_path is not None and class_path != trained:
        raise CheckpointError(
            f"it holds a {trained.rpartition('.')[2]}, not a {class_path.rpartition('.')[2]}",
            where=str(path),
            remedy="give the configuration it was trained with",
        )
    return {"class_path": trained, "init_args": values}


def _as_list(value: Any) -> list[Any]:  # noqa: ANN401 - plugins are of many kinds
    return value if isinstance(value, list) else [] if value is None else [value]
