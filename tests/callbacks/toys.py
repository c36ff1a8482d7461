"""A victim of a few numbers, in which every leak of a callback shows, trained in a blink."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from callbacks.probes.probe import Probe, Visit
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.pruning.policy import NoPruning
from qpriv.result import Result
from qpriv.split import Channel

Deed = Callable[[L.LightningModule], object]


class ToyModel(nn.Sequential, VisionLanguageModel):
    """A few layers in the place of a model."""

    def __init__(self, *layers: nn.Module) -> None:
        nn.Module.__init__(self)
        self.extend(layers)

    train = nn.Module.train


class Toy(L.LightningModule):
    """Draws from every generator, keeps running statistics, and has the attributes of a victim."""

    def __init__(self, rows: int = 8) -> None:
        super().__init__()
        self.policy, self.channel = NoPruning(), Channel.supposed(())
        self.recipe, self.seed = LoraRecipe(), 0
        self.rows = torch.randn(rows, 3, generator=torch.Generator().manual_seed(1))
        self.model = ToyModel(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))

    def encode(self, batch: Tensor, needs: object = None) -> Tensor:
        return self.model(batch)

    def training_step(self, batch: Tensor) -> Tensor:
        shift = random.random() + np.random.rand() + torch.rand(1)
        return (self.model(batch) - shift).square().mean()

    def validation_step(self, batch: Tensor) -> None:
        self.model(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


class ToyData(L.LightningDataModule):
    """The toy's rows, and the lists that an attacker could ask for, all empty."""

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.trainer.lightning_module.rows, 4, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.trainer.lightning_module.rows, 4)

    def _none(self) -> Sequence[Any]:
        return []

    members = nonmembers = population = auxiliary = targets = gallery = _none


class Doing(Probe):
    """Does something to its victim."""

    name: ClassVar[str] = "doing"

    def __init__(self, deed: Deed, **settings: Any) -> None:
        super().__init__(**settings)
        self._deed = deed

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        return [["deed"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        self._deed(visit.module)
        return [Result(name="attack/doing/done", value=1.0, n=1)]


def fit(
    folder: Path, callbacks: Sequence[L.Callback], *, epochs: int = 2, **settings: Any
) -> dict[str, Tensor]:
    """Train the toy and return everything that training could have changed."""
    L.seed_everything(7, verbose=False)
    module = Toy()
    trainer = L.Trainer(
        **{
            "max_epochs": epochs,
            "callbacks": list(callbacks),
            "default_root_dir": folder,
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            **settings,
        }
    )
    trainer.fit(module, datamodule=ToyData())
    state = {name: value.clone() for name, value in module.state_dict().items()}
    drawn = torch.tensor([random.random(), np.random.rand(), float(torch.rand(1))])
    return state | {"next random numbers": drawn}


def differences(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    return [name for name in one if not torch.equal(one[name], other[name])]
