"""A run's own ``config.yaml``, as any command can read it: ``qpriv test --config runs/X/config.yaml``."""

import inspect
import re
from collections.abc import Container
from pathlib import Path

import lightning as L
import yaml

from .run_folder import SETTINGS

_HEADER = "# lightning.pytorch=="
"""The first words of every configuration that a run has written, and of none written by hand."""


def is_written_by_a_run(text: str) -> bool:
    """Return whether a configuration was written by a run, and not by hand."""
    return text.startswith(_HEADER)


def for_command(text: str, path: Path, known: Container[str]) -> str:
    """Return the configuration of a run without what only other commands take.

    The run's folder is the one in which its configuration lies, also where it was moved.

    Args:
        text: The configuration.
        path: Where it lies.
        known: What the command at hand takes.
    """
    settings = yaml.safe_load(text)
    for name in _of_commands() & settings.keys():
        if name not in known:
            del settings[name]
    if is_in_a_run(path) and "trainer" in settings:
        settings["trainer"]["default_root_dir"] = str(path.parent)
    return str(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def is_in_a_run(path: Path) -> bool:
    """Return whether a configuration is one that a run has written and keeps in its folder.

    >>> is_in_a_run(Path("tiny/vqa.yaml"))
    False
    """
    kept = path.match(f"{Path(SETTINGS).stem}*.yaml") and (path.parent / SETTINGS).is_file()
    return kept and is_written_by_a_run(path.read_text("utf-8"))


def name_of_run(folder: Path) -> str:
    """Return a run's name: that of its folder, without time and number.

    >>> name_of_run(Path("runs/vqa_dtp-20260131-120000-2"))
    'vqa_dtp'
    """
    return re.sub(r"-\d{8}-\d{6}(-\d+)?$", "", folder.absolute().name)


def _of_commands() -> set[str]:
    """Return what only some of the commands take, such as ``ckpt_path``."""
    doers = (L.Trainer.fit, L.Trainer.validate, L.Trainer.test, L.Trainer.predict)
    return {name for each in doers for name in inspect.signature(each).parameters} - {"model"}
