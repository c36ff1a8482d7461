"""The page of a run while it goes on: written at epoch ends, and never in its way."""

import lightning as L
import torch
from torch.utils.data import DataLoader

from callbacks.runtime import live_report
from callbacks.runtime.live_report import LiveReport
from tests.qpriv.reporting import fakes

GOES_ON = "training goes on after epoch 1 of 2: reload for more"


class Still(L.LightningModule):
    """A module that learns nothing."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch, batch_idx):
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Reader(L.Callback):
    """Looks at the page as the next epoch begins."""

    def __init__(self, page):
        self.page, self.seen = page, []

    def on_train_epoch_start(self, trainer, pl_module):
        self.seen.append(self.page.read_text() if self.page.exists() else "")


def fit(folder, **given):
    reader = Reader(folder / "report.html")
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=2, callbacks=[LiveReport(folder, **given), reader],
        logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(Still(), DataLoader(torch.zeros(2, 1)))
    return reader


def test_the_page_is_there_while_training_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(live_report, "SHARE", 1e9)
    run = fakes.write_run(tmp_path / "run", fakes.policy_results("off", seed=0))
    before = (run / "results.jsonl").read_bytes()
    reader = fit(run, cost=0.0)
    assert reader.seen[0] == "" and GOES_ON in reader.seen[1]
    last = (run / "report.html").read_text()
    assert "training goes on" not in last and "Accuracy" in last
    assert (run / "results.jsonl").read_bytes() == before
    assert not list(run.glob(".report*"))


def test_a_short_run_is_not_made_longer(tmp_path):
    run = fakes.write_run(tmp_path / "run", fakes.policy_results("off", seed=0))
    fit(run)
    assert not (run / "report.html").exists()


def test_a_page_that_cannot_be_made_does_not_end_the_training(tmp_path, monkeypatch, recwarn):
    monkeypatch.setattr(live_report, "SHARE", 1e9)
    run = fakes.write_run(tmp_path / "run", [])
    (run / "media.jsonl").write_text("{}\n")
    fit(run, cost=0.0)
    assert any("no report for now: DataError" in str(warning.message) for warning in recwarn)
