"""`Export`: export the trained weights at every new best epoch, not only at the end."""

import shutil
from pathlib import Path
from typing import Protocol, runtime_checkable

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from safetensors import SafetensorError

from qpriv.errors import CheckpointError


@runtime_checkable
class Exportable(Protocol):
    """A module that can export its trained weights."""

    def export(self, folder: Path) -> None:
        """Write the trained weights under ``folder``."""
        ...


@runtime_checkable
class Explained(Protocol):
    """A module that explains how to load its export."""

    def how_to_load(self, folder: Path) -> str:
        """Return instructions for loading the export in ``folder``."""
        ...


class Export(L.Callback):
    """Calls the module's ``export`` whenever the checkpoint callback finds a better epoch.

    If no metric is monitored, it exports the last step. The export is written to a draft folder
    first, and then replaces the previous one.

    Args:
        folder: Target folder; None is the run folder.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self._best: float | None = None

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Export the previous epoch if it is the best so far; its weights are still loaded."""
        self._export_if_better(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Export the last epoch if it is the best or nothing was exported; print how to load it.

        This does not happen in ``on_train_end``: a run killed between its last checkpoint and its
        export has nothing left to train when it resumes, so that hook is not called.
        """
        self._export_if_better(trainer, pl_module)
        if self._best is None:
            self._export(trainer, pl_module)
        # only in the process that trained: the main process of ddp_spawn has no trained model
        if trainer.is_global_zero and isinstance(pl_module, Explained):
            print(pl_module.how_to_load(self._target(trainer)))

    def state_dict(self) -> dict[str, float | None]:
        """Return the score of the last export."""
        return {"best": self._best}

    def load_state_dict(self, state_dict: dict[str, float | None]) -> None:
        """Restore the score of the resumed run."""
        self._best = state_dict["best"]

    def _export_if_better(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        checkpoint = trainer.checkpoint_callback
        score = getattr(checkpoint, "best_model_score", None)
        if isinstance(checkpoint, ModelCheckpoint) and score is not None:
            if self._best is None or float(score) != self._best:
                self._best = float(score)
                self._export(trainer, module)

    def _export(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if not trainer.is_global_zero or not isinstance(module, Exportable):
            return
        target = self._target(trainer)
        draft = target / ".export"
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(parents=True)
            module.export(draft)
            for made in draft.iterdir():
                shutil.rmtree(target / made.name, ignore_errors=True)
                made.replace(target / made.name)
            draft.rmdir()
        # safetensors reports a full disk by its own exception
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"cannot write what was trained: {error}",
                where=str(target),
                remedy="free space or make the folder writable; the checkpoints are intact",
            ) from error

    def _target(self, trainer: L.Trainer) -> Path:
        return Path(self.folder or trainer.default_root_dir)
