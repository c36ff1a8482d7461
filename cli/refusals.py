"""What a run cannot be asked for: told before a trainer, data or weights are made."""

import re
from collections.abc import Mapping
from typing import Any

from lightning_modules.refusals import refuse_sharding
from qpriv.errors import ConfigError

_REQUIREMENT = re.compile(
    r"Problem with given class_path '([\w.]+)':\s*Requirement '([^']+)' not met"
)


def refuse_given(given: Mapping[str, Any], command: str) -> None:
    """Refuse settings of the trainer under which a run would not be one.

    Args:
        given: The trainer's settings.
        command: The command at hand.

    Raises:
        ConfigError: If there is one.
    """
    refuse_sharding(given["strategy"])
    _refuse_forked(given["strategy"], command)
    if given["barebones"]:
        raise ConfigError(
            "a run consists of what it leaves out: figures, loggers and checkpoints",
            where="--trainer.barebones",
            remedy="time a run by --trainer.profiler simple, or read clock.jsonl",
        )
    if given["model_registry"] is not None:
        raise ConfigError(
            "checkpoints are sent to no registry",
            where="--trainer.model_registry",
            remedy="leave it out, and upload the exported folder yourself",
        )


def _refuse_forked(strategy: object, command: str) -> None:
    """Refuse to copy a process in which threads are running, and to attack in a spawned one."""
    if isinstance(strategy, str) and strategy.startswith(("ddp_fork", "ddp_notebook")):
        raise ConfigError(
            f"{strategy} copies a process whose threads stay behind, and may wait for them for ever",
            where="--trainer.strategy",
            remedy="use ddp or ddp_spawn, which start new processes",
        )
    if command == "attack" and isinstance(strategy, str) and strategy.startswith("ddp_spawn"):
        raise ConfigError(
            f"{strategy} loads the checkpoint in processes that end before it is attacked",
            where="--trainer.strategy",
            remedy="use ddp, which starts the command once more for each process",
        )


def missing_package(message: str) -> ConfigError | None:
    """Return what a parser's message says of a package that a configured class needs, if it does.

    >>> told = "Problem with given class_path 'a.MLFlowLogger': Requirement 'mlflow>=1' not met."
    >>> print(missing_package(told))
    mlflow>=1 is not installed (in a.MLFlowLogger): pip install 'mlflow>=1'
    """
    if found := _REQUIREMENT.search(message):
        name, package = found.groups()
        return ConfigError(
            f"{package} is not installed", where=name, remedy=f"pip install '{package}'"
        )
    return None
