"""A run that goes on from between two batches ends as one that never stopped."""

from dataclasses import dataclass

import lightning as L
import pytest
import torch

from callbacks.runtime.step_seed import StepSeed
from callbacks.runtime.timed_checkpoint import TimedCheckpoint
from datamodules.base import SplitDataModule

BATCHES, EPOCHS = 4, 3


class Walk(L.LightningModule):
    """Steps that depend on their batch, their number and their chance; it notes what it did."""

    preprocessor = staticmethod(torch.stack)

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.steps, self.validations = [], []

    def training_step(self, batch, batch_idx):
        self.steps.append((self.current_epoch, batch_idx, batch.tolist()))
        return (self.weight * (batch.sum() + torch.rand(1))).sum()

    def validation_step(self, batch):
        self.validations.append((self.current_epoch, self.weight.item()))

    def configure_optimizers(self):
        steps = self.trainer.estimated_stepping_batches  # builds the loaders early, as schedules do
        optimizer = torch.optim.Adam(self.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Death(L.Callback):
    """Ends the run in the ``number``-th batch that it meets."""

    def __init__(self, number):
        self.left = number

    def on_train_batch_end(self, *_):
        self.left -= 1
        if self.left == 0:
            raise ZeroDivisionError


@dataclass(eq=False, repr=False, kw_only=True)
class Rows(SplitDataModule):
    batch_size: int = 2

    def dataset(self, split):
        return torch.arange(2.0 * BATCHES)


def fit(module, folder, *callbacks, **settings):
    last = folder / "last.ckpt"
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=EPOCHS, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        use_distributed_sampler=False, default_root_dir=folder,
        callbacks=[StepSeed(7), *callbacks, TimedCheckpoint(last, minutes=0)], **settings,
    )  # fmt: skip
    trainer.fit(module, Rows(), ckpt_path=last if last.exists() else None, weights_only=True)


@pytest.mark.parametrize("interval", [1.0, 0.5], ids=["validate", "validate twice"])
@pytest.mark.parametrize("deaths", [(2,), (4,), (6,), (11,), (2, 2, 2), (3, 2, 4)], ids=str)
def test_a_run_goes_on_from_any_batch(deaths, interval, tmp_path):
    whole = Walk()
    fit(whole, tmp_path / "whole", val_check_interval=interval)
    assert len(whole.steps) == EPOCHS * BATCHES

    steps, validations = [], []
    for number in deaths:
        dying = Walk()
        with pytest.raises(ZeroDivisionError):
            fit(dying, tmp_path / "dying", Death(number), val_check_interval=interval)
        steps += dying.steps[:-1]  # the last was under way
        validations += dying.validations
    resumed = Walk()
    fit(resumed, tmp_path / "dying", val_check_interval=interval)
    assert steps + resumed.steps == whole.steps
    assert validations + resumed.validations == whole.validations
    assert torch.equal(resumed.weight, whole.weight)


def test_a_run_that_accumulates_gradients_goes_on_from_a_whole_step(tmp_path):
    whole, dying, resumed = Walk(), Walk(), Walk()
    fit(whole, tmp_path / "whole", accumulate_grad_batches=2)
    with pytest.raises(ZeroDivisionError):
        fit(dying, tmp_path / "dying", Death(8), accumulate_grad_batches=2)
    fit(resumed, tmp_path / "dying", accumulate_grad_batches=2)
    assert resumed.steps == whole.steps[6:]
    assert torch.equal(resumed.weight, whole.weight)
