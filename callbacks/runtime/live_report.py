"""`LiveReport`: rewrite a run's report page during the run."""

import time
from pathlib import Path

import lightning as L
from lightning.pytorch.utilities import rank_zero_warn

from callbacks.endings import is_over

SHARE = 0.1
"""Largest share of a run's CPU time that writing its page may take."""


class LiveReport(L.Callback):
    """Rewrites ``report.html`` in the run folder at epoch ends and after the fit.

    It skips the page if writing it would take more than a tenth of the CPU time since the last
    one. For short runs, `write_report` writes the page.

    Args:
        folder: The run folder.
        cost: Expected CPU time of the first page in seconds.
    """

    def __init__(self, folder: Path, cost: float = 2.0) -> None:
        self.folder, self._cost = folder, cost
        self._written = time.process_time()
        self._unfinished = False

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write a page with the results so far."""
        done, planned = trainer.current_epoch + 1, trainer.max_epochs or -1
        of_all = f" of {planned}" if planned > 0 else ""
        if not is_over(trainer):
            self._write(trainer, f"training goes on after epoch {done}{of_all}: reload for more")

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the final page, in place of one that says that the training continues."""
        self._write(trainer, "")

    def _write(self, trainer: L.Trainer, note: str) -> None:
        started = time.process_time()
        dear = self._cost > SHARE * (started - self._written)
        if not trainer.is_global_zero or (dear and (note or not self._unfinished)):
            return
        from qpriv.reporting import write_page  # importing it takes about a second

        try:
            write_page(self.folder, note)
            self._unfinished = bool(note)
        except Exception as error:  # a failed report must not end the training
            rank_zero_warn(f"no report for now: {type(error).__name__}: {error}")
        self._written = time.process_time()
        self._cost = self._written - started
