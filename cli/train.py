"""``qpriv fit | validate | test | predict | attack``: LightningCLI by its public keywords."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

# the imports let a configuration name these classes without their modules
import callbacks  # noqa: F401
import datamodules  # noqa: F401
import lightning_modules  # noqa: F401
import qpriv.defences
import qpriv.pruning.baselines
import qpriv.pruning.policy  # noqa: F401
from callbacks.runtime.checkpoint_io import AtomicCheckpointIO
from callbacks.runtime.inventory import Inventory
from qpriv.errors import CheckpointError, ConfigError, QprivError

from .attack import AttackTrainer
from .console import TellEverywhere, quiet
from .endings import conclusion, written
from .errors import LostProcessError, Terminated, typed
from .loggers import refuse_open
from .own_config import is_in_a_run, name_of_run
from .parser import reading
from .refusals import missing_package, refuse_given
from .run import SaveRunConfig, is_checkpoint, loggers, mark_latest, standard_callbacks
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
            is_typed=bool(typed(args, "--trainer.default_root_dir")),
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

    def instantiate_classes(self) -> None:
        """Build data, model and trainer; name the package that a configured class misses.

        Raises:
            ConfigError: If one does.
        """
        try:
            super().instantiate_classes()
        except ValueError as error:
            if missing := missing_package(str(error)):
                raise missing from error
            raise

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:  # noqa: ANN401
        """Build the trainer with the run's loggers, callbacks and checkpoints."""
        options = self.config_init[self.subcommand]
        given = options.trainer
        refuse_given(given, str(self.subcommand))
        if not given.fast_dev_run:
            own = loggers(options.run, self.run.folder) if given.logger is not False else []
            listed = [each for each in _as_list(given.logger) if isinstance(each, Logger)]
            refuse_open(listed)
            kwargs["logger"] = [*own, *listed] or False
            self.save_config_kwargs = {"folder": str(self.run.folder)}
            always: list[L.Callback] = [TellEverywhere()]
            if self.subcommand == "fit":
                standard = standard_callbacks(options.run, self.model, self.run.folder)
                if given.enable_checkpointing is False:
                    standard = [each for each in standard if not is_checkpoint(each)]
                always += [Inventory(), *standard]
            self.trainer_defaults["callbacks"] = always
        kwargs["plugins"] = [AtomicCheckpointIO(), *_as_list(given.plugins)]
        try:
            return super().instantiate_trainer(**kwargs)
        except (MisconfigurationException, ValueError) as error:
            # no such device, strategy or precision: a mistake of the user's, told as one
            reason = " ".join(str(error).split())
            raise ConfigError(reason, where="--trainer", remedy="see fit --help") from error

    def before_fit(self) -> None:
        """Say where the run goes."""
        if getattr(self.trainer, "fast_dev_run", False):
            print("trial run: nothing of it is kept")
        elif self.trainer.is_global_zero:
            print(f"run folder: {self.run.folder}" + (" (goes on)" if self.run.resumed else ""))

    before_validate = before_test = before_predict = before_attack = before_fit

    def after_fit(self) -> None:
        """Let later stages find this run by its name."""
        if self.trainer.is_global_zero and not getattr(self.trainer, "fast_dev_run", False):
            mark_latest(self.run.folder)
            # a study shows the figures of all its runs together
            if not (self.run.folder / "cell.json").is_file():
                answers = is_overridden("predict_step", self.model, L.LightningModule)
                try:
                    print(conclusion(self.run.folder, answers=answers))
                except QprivError as error:  # the fit itself is done, and nothing of it is lost
                    rank_zero_warn(f"its figures cannot be shown: {error}")

    def after_predict(self) -> None:
        """Say where the predictions are."""
        if self.trainer.is_global_zero:
            print(written(self.run.folder) or "no predictions were written")


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
    except MisconfigurationException as error:
        # what only the trainer knows of: settings that do not go together
        reason = " ".join(str(error).split())
        raise ConfigError(reason, where="--trainer", remedy="see --help") from error
    except ProcessRaisedException as error:
        raise told_by_a_process(str(error)) from error
    except ProcessExitedException as error:
        raise LostProcessError(
            "a process of this run died", remedy="what was finished is kept"
        ) from error
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


def told_by_a_process(text: str) -> Exception:
    """Return the error that a process of ``ddp_spawn`` ended with, of which its traceback is left.

    A mistake is a `QprivError` with the same words, an error of a file system an `OSError`.

    >>> told_by_a_process("qpriv.errors.ConfigError: no GPU: say cpu")
    QprivError('no GPU: say cpu')
    """
    # a traceback's own lines are indented, and so is what follows a message's first line
    *_, (name, words) = re.findall(r"^([\w.]+)(?:: |$)(.*(?:\n[ ].*)*)", text, re.MULTILINE)
    module, _, kind = name.rpartition(".")
    found = getattr(sys.modules.get(module), kind, None)
    if isinstance(found, type) and issubclass(found, QprivError):
        return QprivError(words.strip())
    if number := re.match(r"\[Errno (\d+)\] (.*)", words):
        return OSError(int(number[1]), number[2])
    return RuntimeError(f"{name}: {words}")


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
    """Return the name of the first configuration file, or of the run that it is of."""
    files = [Path(file) for file in typed(args, "--config") + typed(args, "-c")]
    if files and is_in_a_run(files[0]):
        return name_of_run(files[0].parent)
    return files[0].stem if files else ""


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
