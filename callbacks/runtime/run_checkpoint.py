"""`RunCheckpoint`: checkpoints of a run whose folder may be moved or shared."""

from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint

from callbacks.probes.probe import Probe

_FILES = ("best_model_path", "kth_best_model_path", "last_model_path")


class RunCheckpoint(ModelCheckpoint):
    """A `ModelCheckpoint` that saves the names of its files without their folders.

    A checkpoint therefore reveals no folder of the machine that wrote it. A moved run resumes
    with its best score, which the parent class drops if a path has changed. If no metric is
    monitored, the last file also records the epochs that probes measured after its end.
    """

    _ledgers: dict[str, Any] | None = None

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Remember which measured epochs of probes this checkpoint records."""
        self._ledgers = {key: checkpoint["callbacks"].get(key) for key in _ledgers(trainer)}

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Remember which measured epochs of probes the loaded checkpoint records."""
        self._ledgers = {key: checkpoint["callbacks"].get(key) for key in _ledgers(trainer)}

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save again if probes have measured since the last checkpoint."""
        super().on_train_end(trainer, pl_module)
        self._save_measured(trainer)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save again if probes measured a resumed run that had nothing left to train."""
        self._save_measured(trainer)

    def _save_measured(self, trainer: L.Trainer) -> None:
        if self.monitor is None and self._ledgers not in (None, _ledgers(trainer)):
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))

    def state_dict(self) -> dict[str, Any]:
        """Return the state with file names in place of paths."""
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
        """Restore a state; its files are in this run's folder."""
        scores = {self._here(path): score for path, score in state_dict["best_k_models"].items()}
        files = {name: self._here(state_dict[name]) for name in _FILES}
        super().load_state_dict(
            state_dict | files | {"dirpath": self.dirpath, "best_k_models": scores}
        )

    def _here(self, path: str) -> str:
        return str(Path(self.dirpath or ".") / _name(path)) if path else ""


def _name(path: str) -> str:
    """Return a file's name; empty if the file has not been written yet."""
    return Path(path).name


def _ledgers(trainer: L.Trainer) -> dict[str, Any]:
    """Return the measured epochs of each probe."""
    # the trainer sets `callbacks` through a connector, so its annotations lack the attribute
    listed: list[L.Callback] = getattr(trainer, "callbacks")
    return {each.state_key: each.state_dict() for each in listed if isinstance(each, Probe)}
