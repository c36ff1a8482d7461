"""`BriefParser`: LightningCLI's parser, telling a mistake in a few lines."""

import re
from typing import Any, NoReturn

from lightning.pytorch.cli import LightningArgumentParser

from .errors import fail, nearest

_UNKNOWN = re.compile(r"(?:Key '([\w.]+)' is not expected|[Uu]nrecogni[sz]ed arguments?: (\S+))")
_SUBCLASS = re.compile(r"Unexpected import path format: (\w+)|import path (\S+)")


class BriefParser(LightningArgumentParser):
    """A parser without abbreviations, whose errors name the nearest known option.

    Plain argparse takes ``--trainer.max_epoch`` for ``max_epochs`` without a word.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - argparse's own
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print what is wrong and exit with code 2."""
        fail(brief(message), self._hint(message))

    def _hint(self, message: str) -> str:
        found = _UNKNOWN.search(message)
        word = next((group for group in found.groups() if group), "") if found else ""
        options = [
            option.lstrip("-") for action in self._actions for option in action.option_strings
        ]
        return nearest(word.lstrip("-").partition("=")[0], options) if word else ""


def brief(message: str) -> str:
    """Return the lines of a message that say what is wrong.

    jsonargparse lists every type a value failed to be; the last and deepest reason is the one
    that a person can act on.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    noise = (
        "Given value type",
        "Problems parsing",
        "Subtypes",
        "Not of type NoneType",
        "- Expected a",
    )
    return "\n".join(line for line in lines if not line.startswith(noise)) or message
