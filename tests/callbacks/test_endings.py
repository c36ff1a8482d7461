"""However a fit ends without an error, its last weights are measured, once."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, Timer
from torch import Tensor
from torch.utils.data import DataLoader

from callbacks.endings import Ending
from callbacks.probes.probe import Probe, Visit
from callbacks.runtime.run_checkpoint import RunCheckpoint
from callbacks.runtime.step_seed import StepSeed
from cli.loggers import JsonLogger
from cli.run import ResumeRun
from qpriv.datasets.sampler import EpochSampler, ResumableLoader
from qpriv.result import Result, read_results

from .toys import Toy, ToyData


class Rows(ToyData):
    """The toy's rows in an order that a run which goes on finds again."""

    def train_dataloader(self) -> DataLoader[Any]:
        rows = self.trainer.lightning_module.rows
        sampler = EpochSampler(rows, seed=0)
        return ResumableLoader(rows, batch_size=4, sampler=sampler, collate=torch.stack)


class Learner(Toy):
    """A toy whose every step shows in its weights, with a loss that never gets better."""

    def training_step(self, batch: Tensor) -> Tensor:
        loss = super().training_step(batch)
        self.log("train/none", 0.0)
        return loss

    def validation_step(self, batch: Tensor) -> None:
        super().validation_step(batch)
        self.log("val/none", 0.0)


def weight(module: L.LightningModule) -> float:
    return float(sum(p.detach().double().sum() for p in module.parameters()))


class Weigh(Probe):
    """Measures which weights it is shown."""

    name: ClassVar[str] = "weigh"
    deed: ClassVar[Callable[[], object]] = staticmethod(lambda: None)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.visits: list[Visit] = []

    def require(self, module: L.LightningModule, datamodule: object) -> None: ...

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        return [["first"], ["second"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        self.visits.append(visit)
        if item == "second":
            type(self).deed()
        return [Result(name=f"attack/weigh/{item}", value=weight(visit.module), n=1)]


class Say(L.Callback):
    """Tells the trainer to stop at a step, in one of its hooks."""

    def __init__(self, hook: str, step: int) -> None:
        def stop(trainer: L.Trainer, *args: Any) -> None:
            if trainer.global_step >= step:
                trainer.should_stop = True

        setattr(self, hook, stop)


@dataclass(frozen=True)
class Way:
    """A way to end: settings of the trainer, the last epoch and the steps that were taken."""

    epoch: int
    steps: int
    settings: dict[str, Any]
    callbacks: Callable[[], list[L.Callback]] = field(default=list)


STOPPING = {"monitor": "val/none", "patience": 2}
NEVER = {"limit_val_batches": 0}
WAYS = {
    "max_epochs": Way(2, 12, {"max_epochs": 3}),
    "max_steps in an epoch": Way(1, 6, {"max_steps": 6}),
    "max_steps at an epoch's end": Way(1, 8, {"max_steps": 8}),
    "max_steps before the first epoch's end": Way(0, 1, {"max_steps": 1}),
    "max_steps, not validated": Way(1, 6, {"max_steps": 6, **NEVER}),
    "max_steps and endless epochs": Way(1, 6, {"max_steps": 6, "max_epochs": -1}),
    "max_steps and fewer epochs": Way(0, 4, {"max_steps": 6, "max_epochs": 1}),
    "no time left": Way(1, 6, {}, lambda: [Expired(6, "step")]),
    "no time left for an epoch": Way(1, 8, {}, lambda: [Expired(6, "epoch")]),
    "max_time and endless epochs": Way(
        1, 7, {"max_epochs": -1}, lambda: [Expired(7, "step")]
    ),
    "early stopping": Way(2, 12, {}, lambda: [EarlyStopping(**STOPPING)]),
    "early stopping on the training": Way(
        2, 12, NEVER, lambda: [EarlyStopping("train/none", patience=2)]
    ),
    "early stopping at validations": Way(
        1, 6, {"val_check_interval": 0.5}, lambda: [EarlyStopping(**STOPPING)]
    ),
    "early stopping at every second epoch": Way(
        5, 24, {"check_val_every_n_epoch": 2}, lambda: [EarlyStopping(**STOPPING)]
    ),
    "early stopping of endless epochs": Way(
        2, 12, {"max_epochs": -1}, lambda: [EarlyStopping(**STOPPING)]
    ),
    "told in a batch": Way(1, 6, {}, lambda: [Say("on_train_batch_end", 6)]),
    "told in a batch, not validated": Way(1, 6, NEVER, lambda: [Say("on_train_batch_end", 6)]),
    "told before a batch": Way(1, 6, {}, lambda: [Say("on_train_batch_start", 5)]),
    "told at an epoch's end": Way(1, 8, {}, lambda: [Say("on_train_epoch_end", 6)]),
    "told after a validation": Way(1, 8, {}, lambda: [Say("on_validation_end", 6)]),
    "told too early": Way(
        2, 12, {"min_epochs": 3}, lambda: [Say("on_train_batch_end", 2)]
    ),
    "limited batches": Way(1, 6, {"limit_train_batches": 3, "max_epochs": 2}),
    "limited batches and steps": Way(1, 4, {"limit_train_batches": 3, "max_steps": 4}),
    "validated at every second epoch": Way(2, 12, {"max_epochs": 3, "check_val_every_n_epoch": 2}),
    "validated within epochs": Way(1, 7, {"max_steps": 7, "val_check_interval": 0.5}),
    "validated by steps": Way(
        1, 7, {"max_steps": 7, "val_check_interval": 3, "check_val_every_n_epoch": None}
    ),
    "rehearsed": Way(0, 1, {"fast_dev_run": True}),
}  # fmt: skip


class Expired(Timer):
    """A clock that runs out at a step."""

    def __init__(self, step: int, interval: str) -> None:
        super().__init__(timedelta(hours=1), interval)
        self.step = step

    def _check_time_remaining(self, trainer: L.Trainer) -> None:
        if trainer.global_step >= self.step:
            self._offset = 7200.0
        super()._check_time_remaining(trainer)


def run(folder: Path, way: Way, probe: Probe, ckpt: Path | None = None) -> L.LightningModule:
    L.seed_everything(7, verbose=False)
    module = Learner(rows=16)
    saved = RunCheckpoint(
        folder, filename="last", save_on_train_epoch_end=True, enable_version_counter=False
    )
    # probes stand before what stops the training and what a run has besides
    always = [StepSeed(), ResumeRun(folder), Ending(), saved]
    listed = [probe, *way.callbacks(), *always]
    trainer = L.Trainer(
        **{
            "max_epochs": None if "max_steps" in way.settings else 9,
            "logger": JsonLogger(folder),
            "log_every_n_steps": 1,
            "callbacks": listed,
            "default_root_dir": folder,
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            **way.settings,
        }
    )
    trainer.fit(module, datamodule=Rows(), ckpt_path=ckpt)
    return module


def logged(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "attack/weigh/first" in line]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WAYS)
def test_the_last_weights_are_measured_once(name: str, tmp_path: Path) -> None:
    way, probe = WAYS[name], Weigh(every_n_epochs=100)
    module = run(tmp_path, way, probe)
    assert module.trainer.global_step == way.steps
    measured = read_results(tmp_path / "results.jsonl")
    expected = [(f"attack/weigh/{item}", way.epoch, weight(module)) for item in ("first", "second")]
    assert [(r.name, r.epoch, r.value) for r in measured] == expected
    assert {(v.passes, v.goes_on) for v in probe.visits} == {(way.steps / 4, False)}
    assert float(module.trainer.callback_metrics["attack/weigh/first"]) == pytest.approx(
        weight(module), rel=1e-5
    )
    if name == "rehearsed":
        return
    (line,) = logged(tmp_path)
    assert (line["epoch"], line["step"]) == (way.epoch, way.steps - 1)
    stored = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert stored["global_step"] == way.steps
    assert stored["callbacks"][probe.state_key] == {"epochs_done": [way.epoch]}


QUICK = ("max_steps in an epoch", "no time left", "early stopping", "told after a validation")


class Killed(BaseException):
    """What -9 does, as far as one process can: nothing is cleaned up."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in WAYS
        if name != "rehearsed"
    ],
)
def test_a_run_killed_in_its_last_measurement_makes_up_for_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = WAYS[name]
    whole = run(tmp_path / "whole", way, Weigh(every_n_epochs=100))

    def die() -> None:
        raise Killed

    folder, last = tmp_path / "killed", tmp_path / "killed" / "last.ckpt"
    monkeypatch.setattr(Weigh, "deed", staticmethod(die))
    with pytest.raises(Killed):
        run(folder, way, Weigh(every_n_epochs=100))
    monkeypatch.setattr(Weigh, "deed", staticmethod(lambda: None))
    again = Weigh(every_n_epochs=100)
    goes_on = last if last.exists() else None
    module = run(folder, way, again, goes_on)
    assert weight(module) == weight(whole)
    for file in ("results.jsonl", "metrics.jsonl"):
        kept = [(tmp_path / each / file).read_text().splitlines() for each in ("whole", "killed")]
        assert sorted(kept[0]) == sorted(kept[1])
    if goes_on is not None:  # or the run began anew, with other objects of the same weights
        assert len(again.visits) in (1, 2)
    stored = torch.load(last, weights_only=True)
    assert stored["callbacks"][again.state_key] == {"epochs_done": [way.epoch]}
    # and once more: there is nothing left to do
    idle = Weigh(every_n_epochs=100)
    before = [(folder / f).read_bytes() for f in ("results.jsonl", "metrics.jsonl")]
    run(folder, way, idle, last)
    assert idle.visits == []
    assert before == [(folder / f).read_bytes() for f in ("results.jsonl", "metrics.jsonl")]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_nothing_is_measured_where_a_fit_ends_with_an_error(
    error: type[BaseException], tmp_path: Path
) -> None:
    class Break(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
            if trainer.global_step == 6:
                raise error

    way = Way(1, 6, {}, lambda: [Break()])
    with pytest.raises((SystemExit, RuntimeError)):
        run(tmp_path, way, Weigh(every_n_epochs=100))
    assert not (tmp_path / "results.jsonl").exists()
