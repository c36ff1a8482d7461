"""Errors a user can act on: one message that says what, where and what to do."""

import re

_ADDRESS = re.compile(r"<[^<>]* at 0x[0-9a-fA-F]+>")


class QprivError(Exception):
    """A mistake in what the user gave, or a broken input.

    The command line prints the message without a traceback and exits with code 2.

    Args:
        what: What is wrong, with the offending value.
        where: The file, record or config key it was found in.
        remedy: What the user can do about it.

    >>> print(QprivError("ratio is 1.2", where="--model.policy.ratio", remedy="choose 0 to 1"))
    ratio is 1.2 (in --model.policy.ratio): choose 0 to 1
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        place = f" (in {where})" if where else ""
        advice = f": {remedy}" if remedy else ""
        super().__init__(f"{what}{place}{advice}")


class ConfigError(QprivError):
    """A setting that cannot work: an impossible ratio, a cut beyond the model's depth."""


class DataError(QprivError):
    """A file or record that is missing, broken or not what its name says."""


class ModelError(QprivError):
    """Weights or a model folder that cannot be loaded, or do not fit the architecture."""


class CheckpointError(QprivError):
    """A checkpoint that is broken, or belongs to another model."""


def reason(error: BaseException) -> str:
    r"""Return what a library's error says, in one line and without the addresses of its objects.

    >>> reason(OSError("cannot read <_io.BytesIO object at 0x7f05a8>\n(broken)"))
    'cannot read it (broken)'
    >>> reason(EOFError())
    'EOFError'
    """
    told = " ".join(_ADDRESS.sub("it", str(error)).split())
    return told or type(error).__name__
