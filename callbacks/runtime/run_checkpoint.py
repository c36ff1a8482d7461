"""`RunCheckpoint`: checkpoints of a run whose folder may be moved and handed on."""

from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint

from callbacks.probes.probe import Probe

_FILES = ("best_model_path", "kth_best_model_path", "last_model_path")


class RunCheckpoint(ModelCheckpoint):
    """`ModelCheckpoint` that saves the names of its files, and not where they lie.

    A checkpoint tells nobody the folders of the machine it was made on; and a run that was moved
    goes on with its best score, which the parent forgets where a path has changed. Where nothing
    is monitored, the last file also holds what probes have measured after the last epoch's end.
    """

    _ledgers: dict[str, Any] | None = None

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note which measurements of probes are saved."""
        self._ledgers = {key: checkpoint["callbacks"].get(key) for key in _ledgers(trainer)}

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note which measurements of probes were saved."""
        self._ledgers = {key: checkpoint["callbacks"].get(key) for key in _ledgers(trainer)}

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save what probes have measured since."""
        super().on_train_end(trainer, pl_module)
        self._save_measured(trainer)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save what probes have measured of a run that had nothing left to train."""
        self._save_measured(trainer)

    def _save_measured(self, trainer: L.Trainer) -> None:
        if self.monitor is None and self._ledgers not in (None, _ledgers(trainer)):
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the name of every file and the path of none."""
        state = super().state_dict()
        scores = {_name(path): score for path, score in self.best_k_models.items()}
        return (
            state
            | {name: _name(state[name]) for name in _FILES}
            | {
                "dirpath": None,
                "best_k_models": scores,
            }
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state, whose files lie in this run's folder."""
        scores = {self._here(path): score for path, score in state_dict["best_k_models"].items()}
        files = {name: self._here(state_dict[name]) for name in _FILES}
        super().load_state_dict(
            state_dict | files | {"dirpath": self.dirpath, "best_k_models": scores}
        )

    def _here(self, path: str) -> str:
        return str(Path(self.dirpath or ".") / _name(path)) if path else ""


def _name(path: str) -> str:
    """Return a file's name; empty stands for a file that was not written yet."""
    return Path(path).name


def _ledgers(trainer: L.Trainer) -> dict[str, Any]:
    """Return which epochs each probe has measured."""
    # the trainer sets `callbacks` through a connector, which its annotations do not show
    listed: list[L.Callback] = getattr(trainer, "callbacks")
    return {each.state_key: each.state_dict() for each in listed if isinstance(each, Probe)}
