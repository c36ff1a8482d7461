"""How a mistake is told: a line or a few, exit code 2, and no traceback unless it is asked for."""

import argparse
import difflib
import errno
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from qpriv.errors import QprivError

MAX_LINES = 6
_WIDTH = 300
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}
"""Errors of a file system that its owner can put right."""
_LOST = re.compile(
    r"gloo.*(Connection (closed|reset) by peer|[Tt]imed out)|NCCL.*(aborted|remote process)",
    re.DOTALL,
)
"""What is heard of a process that has died: it comes as a RuntimeError like any other."""


class Terminated(KeyboardInterrupt):
    """SIGTERM has stopped the work, as Ctrl-C would have."""


def fail(message: str, hint: str = "") -> NoReturn:
    """Print a message of at most six lines and exit with code 2."""
    lines = [line.rstrip() for line in message.strip().splitlines() if line.strip()]
    shown = [textwrap.shorten(line, _WIDTH, placeholder=" ...") for line in lines]
    room = MAX_LINES - (1 if hint else 0)
    print(f"qpriv: error: {shown[0]}", *shown[1:room], sep="\n  ", file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)
    raise SystemExit(2)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names what was probably meant, or nothing.

    >>> nearest("fitt", ["fit", "test"])
    'did you mean fit?'
    """
    close = difflib.get_close_matches(word, sorted(set(known)), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else ""


class CommandParser(argparse.ArgumentParser):
    """argparse whose mistakes are told in a few lines."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and exit with code 2."""
        word = message.rpartition(" ")[2].lstrip("-").partition("=")[0]
        options = [name.lstrip("-") for action in self._actions for name in action.option_strings]
        fail(message, nearest(word, options) or f"{self.prog} --help tells the options")


def command_parser(command: str, description: str) -> CommandParser:
    """Return the parser of a command that needs no trainer; it takes no abbreviations."""
    return CommandParser(prog=f"qpriv {command}", description=description, allow_abbrev=False)


@contextmanager
def told_briefly(debug: bool, resume_hint: str = "") -> Iterator[None]:
    """Turn errors into a few lines.

    Args:
        debug: Let tracebacks through.
        resume_hint: What to type to go on after Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        print(f"\nqpriv: stopped. {resume_hint}".rstrip(), file=sys.stderr)
        # what a shell reports of a program that the signal ended
        raise SystemExit(143 if isinstance(stopped, Terminated) else 130) from None
    except BrokenPipeError:
        # the reader, such as `head`, has seen enough; what is still buffered must not try again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None  # what a shell reports of a program that SIGPIPE ended
    except Exception as error:
        if debug:
            raise
        known = _cause(error)
        if known is not None:
            goes_on = isinstance(known, (DiskError, LostProcessError))
            fail(str(known), resume_hint if goes_on else "")
        reason = " ".join(str(error).split())
        print(
            f"qpriv: internal error: {type(error).__name__}: {reason[:_WIDTH]}",
            "  the same command with --debug shows where",
            sep="\n",
            file=sys.stderr,
        )
        raise SystemExit(1) from error


class DiskError(QprivError):
    """A file system that takes no more, or does not let us."""


class LostProcessError(QprivError):
    """Another process of a distributed run is gone."""


def _cause(error: BaseException | None) -> QprivError | None:
    """Return the error that others were raised from and a user can act on, or None."""
    while error is not None:
        if isinstance(error, QprivError):
            return error
        if isinstance(error, OSError) and error.errno in _DISK:
            return DiskError(
                str(error.strerror),
                where=str(error.filename or "the run folder"),
                remedy="free space or allow access; what was finished is kept",
            )
        if isinstance(error, RuntimeError) and _LOST.search(str(error)):
            return LostProcessError(
                "another process of this run died or no longer answers",
                remedy="its own last lines say why; what was finished is kept",
            )
        error = error.__cause__ or error.__context__
    return None


def typed(args: Sequence[str], flag: str) -> list[str]:
    """Return every value given for a flag.

    >>> typed(["fit", "--config", "a.yaml", "--config=b.yaml"], "--config")
    ['a.yaml', 'b.yaml']
    """
    pairs = zip(args, [*args[1:], ""], strict=True)
    values = [
        word.partition("=")[2] if "=" in word else following
        for word, following in pairs
        if word == flag or word.startswith(f"{flag}=")
    ]
    return values
