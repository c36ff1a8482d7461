"""A victim small enough to be trained in a test, and the data its attackers ask for."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from qpriv.attacks.observation import one_per_image
from qpriv.datasets.sample import VQASample
from qpriv.models.batch import VQABatch
from qpriv.models.features import NOTHING, Needs, VisualFeatures
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.pruning.baselines import RandomPruning
from qpriv.pruning.policy import PruningPolicy
from qpriv.split import Channel
from tests.tiny_models import random_backbone, random_samples

RECIPE = LoraRecipe(rank=4, learning_rate=1e-2, batch_size=8, epochs=2, dropout=0.1)


class TinyVictim(L.LightningModule):
    """LoRA on a random backbone, with dropout, so that a leak of random numbers shows."""

    def __init__(self, policy: PruningPolicy | None = None, cuts: tuple[int, ...] = (4,)) -> None:
        super().__init__()
        self.model = VisionLanguageModel.from_pretrained(str(random_backbone()))
        self.model.add_lora(rank=4, dropout=0.1, seed=0)
        self.policy = policy or RandomPruning(0.5)
        self.channel, self.recipe, self.seed = Channel.supposed(cuts), RECIPE, 0
        self.norm = torch.nn.BatchNorm1d(1)  # running statistics change in training mode

    def encode(self, batch: VQABatch, needs: Needs = NOTHING) -> VisualFeatures:
        return self.model.encode(batch, needs)

    @property
    def preprocessor(self) -> Any:
        return self.model.preprocessor

    def loss(self, batch: VQABatch) -> Tensor:
        features = self.encode(batch)
        output = self.model(batch, features, self.policy.decide(features, batch.samples))
        return self.norm(output.logits.mean((1, 2))[:, None]).sum() * 0.01 + output.loss

    def training_step(self, batch: VQABatch) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: VQABatch) -> None:
        self.log("val/loss", self.loss(batch), batch_size=len(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return RECIPE.optimizer(self.parameters())


class TinyData(L.LightningDataModule):
    """Noise images; every list an attacker asks for."""

    def __init__(self, members: int = 16) -> None:
        super().__init__()
        drawn = [
            replace(s, meta={**s.meta, "identity": n}) for n, s in enumerate(random_samples(160))
        ]
        self.parts = {
            "members": drawn[:members],
            "nonmembers": drawn[members : 2 * members],
            "population": drawn[2 * members : 5 * members],
        }
        self.gallery_samples = drawn[-60:]

    def members(self) -> Sequence[VQASample]:
        return self.parts["members"]

    def nonmembers(self) -> Sequence[VQASample]:
        return self.parts["nonmembers"]

    def population(self) -> Sequence[VQASample]:
        return self.parts["population"]

    def auxiliary(self) -> Sequence[VQASample]:
        return self.parts["population"]

    def targets(self) -> Sequence[VQASample]:
        return self.gallery_samples[:12]

    def gallery(self) -> Sequence[VQASample]:
        return one_per_image(self.gallery_samples)

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader("members", shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader("nonmembers", shuffle=False)

    def _loader(self, part: str, *, shuffle: bool) -> DataLoader[Any]:
        module = self.trainer.lightning_module
        return DataLoader(self.parts[part], 8, shuffle=shuffle, collate_fn=module.preprocessor)


def fit(
    folder: Path, callbacks: Sequence[L.Callback], *, epochs: int = 2, **settings: Any
) -> dict[str, Tensor]:
    """Train the victim and return everything that training could have changed."""
    L.seed_everything(7, verbose=False)
    module = TinyVictim()
    trainer = partial(
        L.Trainer,
        max_epochs=epochs,
        callbacks=list(callbacks),
        default_root_dir=folder,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=1,
    )(**settings)
    trainer.fit(module, datamodule=TinyData())
    state = {name: value.clone() for name, value in module.state_dict().items()}
    return state | {"next random number": torch.rand(1)}
