"""A module and data that are nobody's of this package: attacked, or told exactly what is missing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from callbacks import (
    AttributeProbe,
    ExtractionProbe,
    ForaProbe,
    FshaProbe,
    GradientInversionProbe,
    IrrelevantQuestionProbe,
    MembershipProbe,
    Probe,
    SensitivityProbe,
    SideChannelProbe,
    SteeringProbe,
)
from qpriv.attacks.members import faults, members, missing
from qpriv.attacks.victim import AttackData, Victim, describe
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.models.batch import VQABatch
from qpriv.models.features import NOTHING, Needs, VisualFeatures
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.pruning.baselines import RandomPruning
from qpriv.result import read_results
from qpriv.split import Channel
from tests.tiny_models import random_backbone

from ..victims import TinyData


class Foreign(L.LightningModule):
    """Somebody's module: what a `Victim` lists, and a training of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.model = VisionLanguageModel.from_pretrained(str(random_backbone()))
        self.model.add_lora(rank=2)
        self.policy, self.channel = RandomPruning(0.5), Channel.supposed((4,))
        self.recipe, self.seed = LoraRecipe(rank=2, batch_size=8, epochs=1), 3

    def encode(self, batch: VQABatch, needs: Needs = NOTHING) -> VisualFeatures:
        return self.model.encode(batch, needs)

    def training_step(self, batch: VQABatch) -> Tensor:
        features = self.encode(batch)
        output = self.model(batch, features, self.policy.decide(features, batch.samples))
        return output.loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], 1e-3)


class ForeignData(L.LightningDataModule):
    """Somebody's data: what `AttackData` lists, and a loader."""

    def __init__(self) -> None:
        super().__init__()
        lists = TinyData()
        for name in members(AttackData):
            setattr(self, name, getattr(lists, name))

    def train_dataloader(self) -> DataLoader[Any]:
        samples: Sequence[VQASample] = getattr(self, "members")()
        return DataLoader(samples, 8, collate_fn=self.trainer.lightning_module.model.preprocessor)


def probes() -> list[Probe]:
    short: dict[str, Any] = {"steps": 1, "batch_size": 4}
    few = {"max_samples": 4}
    return [
        SensitivityProbe(**few),
        ForaProbe(client="supervised", **few, **short),
        ForaProbe(client="substitute", alignment_steps=1, **few, **short),
        FshaProbe(**few, **short),
        MembershipProbe(shadows=2, max_samples=8),
        GradientInversionProbe(max_samples=2),
        SideChannelProbe(),
        AttributeProbe(),
        IrrelevantQuestionProbe(**few),
        SteeringProbe(auxiliary_samples=2, steps=1, edits=1, **few),
    ]


def train(folder: Path, module: L.LightningModule, data: object, listed: Sequence[Probe]) -> None:
    L.Trainer(
        max_steps=1, max_epochs=-1, callbacks=list(listed), default_root_dir=folder,
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0,
    ).fit(module, datamodule=data)  # fmt: skip


@pytest.fixture(scope="module")
def module() -> Foreign:
    return Foreign()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_probe_of_a_victim_runs_on_a_foreign_module(module: Foreign, tmp_path: Path) -> None:
    listed = probes()
    train(tmp_path, module, ForeignData(), listed)
    results = read_results(tmp_path / "results.jsonl")
    assert [r.note for r in results if r.status == "failed"] == []
    assert {type(probe).__name__ for probe in listed} == {r.measured_by for r in results}
    assert {(r.epoch, r.seed, r.policy) for r in results} == {(0, 3, module.policy.label)}


def without(given: Any, name: str) -> Any:
    """Return a copy of an object's members, but for one."""
    kind = Victim if isinstance(given, L.LightningModule) else AttackData
    base: type = L.LightningModule if kind is Victim else L.LightningDataModule

    class Lacking(base):  # type: ignore[misc, valid-type]
        train_dataloader = ForeignData.train_dataloader

        def training_step(self, batch: VQABatch) -> Tensor:
            raise AssertionError("it is trained")

        def configure_optimizers(self) -> None: ...

    lacking = Lacking()
    for each in members(kind):
        if each != name:
            setattr(lacking, each, getattr(given, each))
    return lacking


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*members(Victim), *members(AttackData)])
def test_what_lacks_is_named_before_training(name: str, module: Foreign, tmp_path: Path) -> None:
    victim, data = module, ForeignData()
    part = without(victim, name) if name in members(Victim) else without(data, name)
    pair = (part, data) if name in members(Victim) else (without(victim, ""), part)
    for probe in probes():
        with pytest.raises(ConfigError, match=f"Lacking .*: it has no {name}:"):
            train(tmp_path, *pair, [probe])


WRONG = {
    "model": (torch.nn.Linear(1, 1), "model is of type Linear, not VisionLanguageModel"),
    "encode": (lambda batch: batch, r"encode takes \(batch\), and is called with \(batch, needs\)"),
    "policy": ("off", "policy is of type str, not PruningPolicy"),
    "channel": ((4,), "channel is of type tuple, not Channel"),
    "recipe": (None, "recipe is of type NoneType, not LoraRecipe"),
    "seed": ("3", "seed is of type str, not int"),
    "members": ([], "members is of type list, and is called"),
    "gallery": (lambda split: [], r"gallery takes \(split\), and is called with \(\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_has_another_form_is_named(name: str, module: Foreign) -> None:
    value, said = WRONG[name]
    of_victim = name in members(Victim)
    part = without(module if of_victim else ForeignData(), name)
    setattr(part, name, value)
    trainer = L.Trainer(logger=False, accelerator="cpu")
    trainer.datamodule = ForeignData() if of_victim else part
    with pytest.raises(ConfigError, match=said):
        SensitivityProbe().on_fit_start(trainer, part if of_victim else module)


@pytest.mark.parametrize("error", [AttributeError, RuntimeError])
def test_a_property_that_fails_is_there_and_says_why(
    error: type[Exception], module: Foreign
) -> None:
    class Failing(type(without(module, ""))):  # type: ignore[misc]
        @property
        def recipe(self) -> LoraRecipe:
            raise error("there is no trainer")

    failing = Failing()
    for each in members(Victim):
        if each != "recipe":
            setattr(failing, each, getattr(module, each))
    assert missing(failing, Victim) == []
    (fault,) = faults(failing, Victim)
    assert fault.startswith(f"recipe cannot be read ({error.__name__}")
    # results say under what they were measured, whatever a recipe is
    assert describe(failing)["policy"] == module.policy.label


def test_what_trains_no_document_model_is_told_what_it_lacks(module: Foreign) -> None:
    trainer = L.Trainer(logger=False, accelerator="cpu")
    trainer.datamodule = ForeignData()
    with pytest.raises(ConfigError, match="model is of type VisionLanguageModel, not Document"):
        ExtractionProbe().on_fit_start(trainer, module)
    with pytest.raises(ConfigError, match="trains no document model: it has no model, seed"):
        ExtractionProbe().on_fit_start(trainer, L.LightningModule())
