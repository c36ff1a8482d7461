"""`EpochEnds`: schedules a probe after epochs, however the epoch and the training end."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import lightning as L

from callbacks.endings import is_over, last_epoch, log_last, passes
from callbacks.probes.stopping import stoppable
from qpriv.attacks.victim import AttackData
from qpriv.result import Result


class EpochEnds(L.Callback, ABC):
    """A callback that measures after every n-th epoch, and always after the last one.

    It measures no epoch twice. A resumed run first measures an epoch that was trained but not
    measured.
    """

    every_n_epochs: int
    _epochs_done: set[int]
    _epoch_began: float | None

    @abstractmethod
    def require(self, module: L.LightningModule, datamodule: object) -> None:
        """Raise a `ConfigError` if the callback cannot work with this module or data."""

    @abstractmethod
    def run_once(
        self,
        module: L.LightningModule,
        data: AttackData,
        run_folder: Path,
        epoch: int,
        trained: float | None = None,
        goes_on: bool = False,
    ) -> list[Result]:
        """Measure the module in its current state and return the results."""

    @abstractmethod
    def metrics(self, results: Sequence[Result]) -> dict[str, float]:
        """Return the finite values by the names under which they are logged."""

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check the module and the data before training starts."""
        self.require(pl_module, datamodule_of(trainer))

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure the epoch that a killed run trained but did not measure."""
        self._run_in_fit(trainer, pl_module, trainer.current_epoch - 1)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Record the start of the epoch, to report the probe's share of its time."""
        self._epoch_began = time.monotonic()

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure after the last validation of an epoch."""
        in_fit = trainer.state.fn == "fit" and not trainer.sanity_checking
        if in_fit and trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self._run_in_fit(trainer, pl_module, trainer.current_epoch)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure an epoch that ended without a validation."""
        self._run_in_fit(trainer, pl_module, trainer.current_epoch)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure the last epoch if something that ran after its end made it the last."""
        self._run_last(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure the last epoch of a resumed run that has nothing left to train."""
        if 0 <= last_epoch(trainer) not in self._epochs_done:
            pl_module.to(trainer.strategy.root_device)  # the trainer has moved it to the CPU
            self._run_last(trainer, pl_module)
            pl_module.cpu()

    def share_of_epoch(self, seconds: float) -> str:
        """Return the probe's share of the epoch so far, as text; empty outside a fit."""
        if self._epoch_began is None:
            return ""
        return f" ({seconds / (time.monotonic() - self._epoch_began):.0%} of the epoch so far)"

    def _run_in_fit(self, trainer: L.Trainer, module: L.LightningModule, epoch: int) -> None:
        over = is_over(trainer)
        if over or (epoch + 1) % self.every_n_epochs == 0:
            metrics = self._run_epoch(trainer, module, epoch, goes_on=not over)
            module.log_dict(metrics, batch_size=1, add_dataloader_idx=False)

    def _run_last(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        epoch = last_epoch(trainer)
        if metrics := self._run_epoch(trainer, module, epoch, goes_on=False):
            log_last(trainer, metrics, epoch)

    def _run_epoch(
        self, trainer: L.Trainer, module: L.LightningModule, epoch: int, *, goes_on: bool
    ) -> dict[str, float]:
        """Return the metrics of an epoch; empty if it was already measured."""
        if epoch < 0 or epoch in self._epochs_done:
            return {}
        data = cast(AttackData, datamodule_of(trainer))  # checked when the fit started
        folder, trained = Path(trainer.default_root_dir), passes(trainer)
        with stoppable(trainer):
            results = self.run_once(module, data, folder, epoch, trained, goes_on)
        self._epochs_done.add(epoch)
        return self.metrics(results)

    def state_dict(self) -> dict[str, Any]:
        """Return the epochs already measured."""
        return {"epochs_done": sorted(self._epochs_done)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the measured epochs of the resumed run."""
        self._epochs_done = set(state_dict["epochs_done"])


def datamodule_of(trainer: L.Trainer) -> object:
    """Return a trainer's data module, or None if it has none."""
    return getattr(trainer, "datamodule", None)
