"""Console output: our messages and warnings, without library noise."""

import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import lightning as L
from lightning.pytorch.utilities import rank_zero_only
from tqdm import tqdm


class TellEverywhere(L.Callback):
    """Sets up the console output of processes that ``ddp_spawn`` starts, too."""

    def __reduce__(self) -> tuple[Callable[[], "TellEverywhere"], tuple[()]]:
        """Set up the console when unpickled in another process, before it reads any data."""
        return _there, ()


def _there() -> TellEverywhere:
    quiet()
    return TellEverywhere()


def quiet() -> None:
    """Silence library messages that say nothing about the run: tips, device lists, deprecations."""
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
        # figures are gathered before they are logged, and the same in every process
        r".*when logging on epoch level in distributed setting.*",
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
    for name in ("qpriv", "callbacks", "datamodules", "lightning_modules"):
        suite = logging.getLogger(name)
        suite.setLevel(logging.INFO)
        if not suite.handlers:
            suite.addHandler(_Told())


class _Told(logging.Handler):
    """Prints a message as it is, above a progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message, unless this is not the first process; ranks are known only later."""
        if getattr(rank_zero_only, "rank", 0):
            return
        word = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        tqdm.write(word + self.format(record), file=sys.stderr)
