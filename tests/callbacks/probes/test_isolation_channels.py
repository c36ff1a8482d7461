"""Each way in which an attack may contaminate the training it watches: tried with and without care."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn
from torch.utils.data import DataLoader

from callbacks.probes.isolation import isolated
from callbacks.runtime.step_seed import StepSeed
from qpriv.result import read_results

from ..toys import Deed, Doing, differences, fit

AT = {"validation": {}, "epoch's end": {"limit_val_batches": 0}}
Outcome = Literal["equal", "differs", "crashes"]


def train_decoder(module: L.LightningModule) -> None:
    decoder = nn.Linear(4, 3)
    decoder(module.model[0](module.rows)).square().mean().backward()


def train_decoder_with_gradients(module: L.LightningModule) -> None:
    with torch.enable_grad():
        train_decoder(module)


def forward_in_training_mode(module: L.LightningModule) -> None:
    with isolate_rng():
        module.model(module.rows)


def read_a_loader(module: L.LightningModule) -> None:
    list(DataLoader(module.rows, shuffle=False))


def read_the_live_loader(module: L.LightningModule) -> None:
    list(module.trainer.train_dataloader)


def take_gradients(module: L.LightningModule) -> None:
    module.requires_grad_(True)
    module.model[0](module.rows).sum().backward()


def train_the_victim(module: L.LightningModule) -> None:
    take_gradients(module)
    torch.optim.SGD(module.parameters(), 1.0).step()


def leave_hook(module: L.LightningModule) -> None:
    module.model[0].register_forward_hook(lambda layer, inputs, output: output * 0)


def leave_hook_on_parameter(module: L.LightningModule) -> None:
    module.model[0].weight.requires_grad_(True).register_hook(lambda gradient: gradient * 0)


def draw(module: L.LightningModule) -> None:
    torch.rand(1)


@dataclass(frozen=True)
class Channel:
    """What is done, at which hook, and what becomes of a training that is not protected."""

    deed: Deed
    careless: Outcome
    at: str = "epoch's end"
    step_seed: bool = False


CHANNELS = {
    "a decoder without gradients": Channel(train_decoder, "crashes", "validation"),
    "a decoder's random numbers": Channel(train_decoder_with_gradients, "differs", "validation"),
    "running statistics": Channel(forward_in_training_mode, "differs"),
    "a loader's seed": Channel(read_a_loader, "differs"),
    "a layer's first weights": Channel(lambda module: nn.Linear(2, 2), "differs"),
    "torch's random numbers": Channel(draw, "differs", "validation"),
    "numpy's random numbers": Channel(lambda module: np.random.rand(), "differs"),
    "python's random numbers": Channel(lambda module: random.random(), "differs"),
    "a seed for everything": Channel(lambda _: L.seed_everything(1), "differs"),
    "the seed in the environment": Channel(
        lambda _: L.seed_everything(1), "differs", step_seed=True
    ),
    "evaluation mode after validation": Channel(lambda m: m.eval(), "equal", "validation"),
    "evaluation mode after an epoch": Channel(lambda m: m.eval(), "differs"),
    "frozen parameters": Channel(lambda m: m.requires_grad_(False), "crashes"),
    "gradients at an epoch's end": Channel(take_gradients, "equal"),
    "the live loader": Channel(read_the_live_loader, "differs"),
    "a forward hook": Channel(leave_hook, "differs"),
    "a hook on a parameter": Channel(leave_hook_on_parameter, "differs"),
    "the victim's weights": Channel(train_the_victim, "differs"),
    "the default type": Channel(lambda _: torch.set_default_dtype(torch.float64), "differs"),
}


class Careless(L.Callback):
    """Does a deed at a hook, without protection."""

    def __init__(self, channel: Channel) -> None:
        self.deed, self.at = channel.deed, channel.at

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.at == "validation":
            self.deed(pl_module)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.at != "validation":
            self.deed(pl_module)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Put back what the careless change in the test's own process."""
    before = dict(os.environ)
    yield
    torch.set_default_dtype(torch.float32)
    os.environ.clear()
    os.environ.update(before)


@cache
def unwatched(at: str, step_seed: bool) -> dict[str, torch.Tensor]:
    return fit(Path(), [StepSeed()] if step_seed else [], **AT[at])


def outcome(folder: Path, channel: Channel, callback: L.Callback) -> Outcome:
    """Return what becomes of a training with a callback, held against one without."""
    plain = unwatched(channel.at, channel.step_seed)
    try:
        callbacks = [StepSeed(), callback] if channel.step_seed else [callback]
        watched = fit(folder, callbacks, **AT[channel.at])
    except RuntimeError:
        return "crashes"
    return "differs" if differences(plain, watched) else "equal"


@pytest.mark.parametrize("name", CHANNELS)
def test_a_channel_is_open_without_care_and_closed_to_probes(name: str, tmp_path: Path) -> None:
    channel = CHANNELS[name]
    assert outcome(tmp_path / "careless", channel, Careless(channel)) == channel.careless
    torch.set_default_dtype(torch.float32)
    probe = Doing(channel.deed, audit_isolation=True, on_error="stop")
    assert outcome(tmp_path / "probe", channel, probe) == "equal"
    assert len(read_results(tmp_path / "probe" / "results.jsonl")) == 2


NAMED = {
    "optimizer": lambda m: m.trainer.optimizers[0].param_groups[0].update(lr=9.0),
    "frozen": lambda m: m.frozen.weight.data.add_(1.0),
    "module added": lambda m: m.add_module("added", nn.Linear(1, 1)),
}


class WithFrozen(L.Callback):
    """Gives the victim a frozen layer."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        pl_module.frozen = nn.Linear(1, 1).requires_grad_(False)


@pytest.mark.parametrize("name", NAMED)
def test_what_is_not_undone_is_named_by_the_audit(name: str, tmp_path: Path) -> None:
    fit(tmp_path, [WithFrozen(), Doing(NAMED[name], audit_isolation=True)], epochs=1)
    (result,) = read_results(tmp_path / "results.jsonl")
    assert result.status == "failed"
    assert "doing left a trace in" in result.note
    assert name in result.note


class MidAccumulation(L.Callback):
    """Takes the victim's gradients between two batches whose gradients are added up."""

    def __init__(self, protect: bool) -> None:
        self.protect = protect

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *args: object
    ) -> None:
        if self.protect:
            with isolated(pl_module, seed=0, audit=True):
                take_gradients(pl_module)
        else:
            take_gradients(pl_module)


@pytest.mark.parametrize("protect", [True, False])
def test_gradients_that_are_being_added_up_stay_as_they_are(protect: bool, tmp_path: Path) -> None:
    plain, watched = (
        fit(tmp_path, callbacks, accumulate_grad_batches=2)
        for callbacks in ([], [MidAccumulation(protect)])
    )
    assert bool(differences(plain, watched)) != protect


def test_the_sanity_check_is_no_channel_and_no_occasion(tmp_path: Path) -> None:
    visits: list[str] = []
    probe = Doing(lambda module: visits.append("x"))
    plain = fit(tmp_path / "plain", [], epochs=1)
    checked = fit(tmp_path / "checked", [probe], epochs=1, num_sanity_val_steps=1)
    assert differences(plain, checked) == []
    assert len(visits) == 1
