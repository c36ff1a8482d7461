"""Checkpoints name no folder, and a run that was moved goes on with its best score."""

import shutil

import lightning as L
import torch
from torch.utils.data import DataLoader

from callbacks.runtime.run_checkpoint import RunCheckpoint


class Falling(L.LightningModule):
    """A module whose loss is what the test says."""

    def __init__(self, *losses: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.losses = losses

    def training_step(self, batch, batch_idx):
        self.log("loss", self.losses[self.current_epoch], on_epoch=True)
        return self.weight.sum() + self.losses[self.current_epoch]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(folder, module, epochs, ckpt_path=None):
    best = RunCheckpoint(
        folder / "checkpoints", filename="best", monitor="loss", enable_version_counter=False
    )
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=epochs, callbacks=[best], logger=False, barebones=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, DataLoader(torch.zeros(2, 1)), ckpt_path=ckpt_path, weights_only=True)
    return best


def test_a_moved_run_keeps_its_best_score_and_tells_no_folder(tmp_path):
    home = tmp_path / "home-of-ada"
    fit(home, Falling(1.0), epochs=1)
    shutil.move(home, tmp_path / "archive")
    best = tmp_path / "archive" / "checkpoints" / "best.ckpt"
    assert b"home-of-ada" not in best.read_bytes()

    worse = fit(tmp_path / "archive", Falling(1.0, 2.0), epochs=2, ckpt_path=best)
    assert worse.best_model_score == 1.0 and worse.best_model_path == str(best)
    assert torch.load(best, weights_only=True)["epoch"] == 0
    better = fit(tmp_path / "archive", Falling(1.0, 0.5), epochs=2, ckpt_path=best)
    assert better.best_model_score == 0.5
    assert torch.load(best, weights_only=True)["epoch"] == 1
