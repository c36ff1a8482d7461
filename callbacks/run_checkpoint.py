"""`RunCheckpoint`: checkpoints of a run whose folder may be moved and handed on."""

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint

_FILES = ("best_model_path", "kth_best_model_path", "last_model_path")


class RunCheckpoint(ModelCheckpoint):
    """`ModelCheckpoint` that saves the names of its files, and not where they lie.

    A checkpoint tells nobody the folders of the machine it was made on; and a run that was moved
    goes on with its best score, which the parent forgets where a path has changed.
    """

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
