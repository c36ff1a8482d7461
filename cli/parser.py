"""`BriefParser`: LightningCLI's parser, telling a mistake in a few lines."""

import inspect
import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import lightning as L
from jsonargparse import ActionConfigFile  # type: ignore[attr-defined]
from lightning.pytorch.cli import LightningArgumentParser

from qpriv.pruning.policy import PruningPolicy
from qpriv.split.defence import Defence

from .errors import fail, nearest
from .own_config import for_command, is_written_by_a_run

_KEY = re.compile(r'Parser key "([\w.]+)":\s*')
_CLASS = re.compile(r"Expected a dot import path string: (\S+)")
_OPTION = re.compile(r"Option '([\w.]+)' is not accepted|unrecognized arguments: (\S+)")
_CHOICE = re.compile(r"Expected a typing\.Literal\[(.*?)\]\. Got value: ")
_APPENDED = re.compile(r"(\w+)\+[\"']?\s*:")
_TYPE = re.compile(r"Expected a <class '(\w+)'>\. Got value: ")


def reading() -> dict[str, Any]:
    """Return how every `LightningCLI` here reads what was typed and configured."""
    return {
        "seed_everything_default": 0,
        "parser_kwargs": {"default_env": True, "env_prefix": "QPRIV"},
        "parser_class": BriefParser,
        "subclass_mode_model": True,
        "subclass_mode_data": True,
        "auto_configure_optimizers": False,
    }


class ConfigFile(ActionConfigFile):
    """A configuration file whose lists of classes take the place of earlier ones, whole.

    Plain jsonargparse merges two lists of one length item by item: a second file's ``ForaProbe``
    would silently keep the ``steps`` of the first file's. A list named with a plus
    (``callbacks+:``) is appended, as everywhere.
    """

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: Any,  # noqa: ANN401 - argparse's own
        option_string: str | None = None,
    ) -> None:
        """Read the file into ``namespace``; lists that it does not name stay."""
        # a configuration may be given in place of a file; its text is too long for a path
        text = Path(values).read_text("utf-8") if os.path.isfile(values) else values
        if is_written_by_a_run(text):
            known = {action.dest for action in parser._actions}
            values = text = for_command(text, Path(values), known)
        appended = _APPENDED.findall(text)
        earlier = {
            key: namespace.pop(key)
            for key, value in list(namespace.items())
            if _names_classes(value) and key.rpartition(".")[2] not in appended
        }
        super().__call__(parser, namespace, values, option_string)  # type: ignore[no-untyped-call]
        for key, value in earlier.items():
            if key not in namespace:
                namespace[key] = value


def _names_classes(value: object) -> bool:
    return isinstance(value, list) and any(
        isinstance(each, dict | Namespace) and "class_path" in each for each in value
    )


class BriefParser(LightningArgumentParser):
    """A parser without abbreviations, whose errors name what was probably meant.

    Plain argparse takes ``--trainer.max_epoch`` for ``max_epochs`` without a word.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - argparse's own
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def add_argument(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - argparse's own
        """Add an argument; configuration files are read by `ConfigFile`."""
        if kwargs.get("action") is ActionConfigFile:
            kwargs["action"] = ConfigFile
        return super().add_argument(*args, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print what is wrong and exit with code 2."""
        if found := _OPTION.search(message):
            word = (found[1] or found[2]).lstrip("-").partition("=")[0]
            names = (name for action in self._actions for name in action.option_strings)
            options = [name.lstrip("-") for name in names if not name.endswith(".help")]
            fail(brief(message), nearest(word, [*options, *_arguments()]))
        if found := _CLASS.search(message):
            fail(brief(message), nearest(found[1], (known.__name__ for known in _classes())))
        fail(brief(message))


def brief(message: str) -> str:
    r"""Return what a person can act on of a message of jsonargparse.

    >>> brief("Parser key \"rank\":\n  Expected a <class 'int'>. Got value: many")
    "rank: expected int, not 'many'"
    """
    key = found[1] if (found := _KEY.search(message)) else ""
    if found := _CLASS.search(message):
        return f"{key}: there is no class {found[1]}"
    text = _KEY.sub("", message).strip()
    for pattern, words in ((_CHOICE, "one of {}"), (_TYPE, "{}")):
        if (found := pattern.search(text)) and "Union" not in text:
            value = text[found.end() :].splitlines()[0]
            return f"{key}: expected {words.format(found[1])}, not {value!r}"
    return f"{key}: {text}" if key else text


def _classes() -> Iterator[type]:
    """Yield the classes of this suite that a configuration can name."""
    roots = (L.LightningModule, L.LightningDataModule, L.Callback, PruningPolicy, Defence)
    ours = ("lightning_modules", "datamodules", "callbacks", "qpriv")
    pending: list[type] = list(roots)
    while pending:
        pending += (known := pending.pop()).__subclasses__()
        if known.__module__.partition(".")[0] in ours and not inspect.isabstract(known):
            yield known


def _arguments() -> set[str]:
    """Return the names of all arguments of those classes."""
    return {name for known in _classes() for name in inspect.signature(known).parameters}
