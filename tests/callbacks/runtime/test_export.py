import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from callbacks.runtime.export import Export

SCORES = [0.2, 0.5, 0.4, 0.9]


class Scored(L.LightningModule):
    """Its validation scores are known beforehand; it exports the epoch it is in."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.exported = []

    def training_step(self, batch):
        return self.layer(batch).sum()

    def validation_step(self, batch):
        self.log("score", SCORES[self.current_epoch])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def export(self, folder):
        self.exported.append(self.layer.weight.item())
        (folder / "adapter").mkdir()
        (folder / "adapter" / "weights.txt").write_text(str(self.layer.weight.item()))


class Explained(Scored):
    """It says how to use what it exports."""

    def how_to_load(self, folder):
        return f"read {folder / 'adapter' / 'weights.txt'}"


def fit(folder, epochs, monitor="score", kind=Scored):
    module = kind()
    callbacks = [Export(str(folder))]
    if monitor:
        callbacks.append(ModelCheckpoint(folder / "checkpoints", monitor=monitor, mode="max"))
    loader = DataLoader(torch.ones(2, 1))
    L.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=bool(monitor),
        callbacks=callbacks,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    ).fit(module, loader, loader)
    return module


def test_every_new_best_is_exported_with_its_own_weights(tmp_path, capsys):
    module = fit(tmp_path, 4, kind=Explained)
    assert capsys.readouterr().out.count(f"read {tmp_path / 'adapter' / 'weights.txt'}") == 1
    assert len(module.exported) == 3  # epochs 0, 1 and 3
    assert float((tmp_path / "adapter" / "weights.txt").read_text()) == module.layer.weight.item()


def test_the_last_epoch_is_not_exported_where_an_earlier_one_was_better(tmp_path):
    module = fit(tmp_path, 3)
    kept = float((tmp_path / "adapter" / "weights.txt").read_text())
    stored = torch.load(next((tmp_path / "checkpoints").glob("*.ckpt")), weights_only=False)
    assert kept == stored["state_dict"]["layer.weight"].item() != module.layer.weight.item()


def test_without_a_monitor_the_last_step_is_exported(tmp_path):
    assert fit(tmp_path, 2, monitor=None).exported == [
        float((tmp_path / "adapter" / "weights.txt").read_text())
    ]
    assert not (tmp_path / ".export").exists()
