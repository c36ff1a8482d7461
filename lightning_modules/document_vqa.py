"""`DocumentVQAModule`: fine-tune Donut, Pix2Struct or PaliGemma for document VQA."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor

from qpriv.datasets.documents.scan import ScanNoise
from qpriv.metrics.functional import anls
from qpriv.models.documents.base import DocumentModel
from qpriv.models.documents.batch import DocumentBatch, PageReader
from qpriv.models.documents.loading import load_document_model
from qpriv.models.documents.lora import add_document_lora
from qpriv.models.precision import new_tensors
from qpriv.paradigms.documents import DocumentRecipe, batch_loss, step_generator
from qpriv.paradigms.recipe import Schedule

from .base import TrainedOnly


class DocumentVQAModule(TrainedOnly):
    """A document model, fine-tuned in full or with LoRA on its text decoder.

    A batch holds pages with all their questions; each page is encoded once.

    Args:
        document_model: ``tiny``, a hub id or a folder; see `load_document_model`.
        resolution: Resolution of the input as a share of the page's height and width, in (0, 1].
        image_size: Height and width of Donut's input in pixels; null is the checkpoint's.
        max_patches: Patches of Pix2Struct's input; null is the checkpoint's.
        lora_rank: Rank of LoRA on the text decoder; null trains all weights.
        lora_alpha: LoRA's scale; the update is ``lora_alpha / lora_rank * B A``.
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Decoupled weight decay.
        schedule: How the learning rate falls after the warm-up.
        warmup: Share of all steps in which the learning rate rises.
        scan_noise: Add random shift, ink and grain to every page at every step.
        answer_variant: How ANLS treats its threshold; see `qpriv.metrics.functional.anls`.
        seed: Seed of the noise and of the adapters; null is the run's ``seed_everything``.

    Raises:
        ConfigError: If a setting does not belong to the model's family.
        ModelError: If there is no such model.
    """

    monitor: ClassVar[str] = "val/loss"
    monitor_mode: ClassVar[Literal["min", "max"]] = "min"

    def __init__(
        self,
        document_model: str = "tiny",
        resolution: float = 1.0,
        image_size: tuple[int, int] | None = None,
        max_patches: int | None = None,
        lora_rank: int | None = None,
        lora_alpha: float = 64.0,
        learning_rate: float = 8e-4,
        weight_decay: float = 0.01,
        schedule: Schedule = "linear",
        warmup: float = 0.1,
        scan_noise: bool = True,
        answer_variant: Literal["rrc", "formula"] = "rrc",
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        self.save_hyperparameters()
        self._name, self._resolution = document_model, resolution
        self._image_size, self._max_patches = image_size, max_patches
        self._lora_rank, self._lora_alpha = lora_rank, lora_alpha
        self._variant: Literal["rrc", "formula"] = answer_variant
        self.recipe = DocumentRecipe(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            schedule=schedule,
            warmup=warmup,
            noise=ScanNoise() if scan_noise else None,
        )

    @new_tensors(torch.float32)
    def configure_model(self) -> None:
        """Load the model, once."""
        if hasattr(self, "model"):
            return
        self.model: DocumentModel = load_document_model(
            self._name, self._resolution, self._image_size, self._max_patches
        )
        if self._lora_rank is not None:
            add_document_lora(self.model, self._lora_rank, self._lora_alpha, seed=self.seed)
        self._reader = PageReader(self.model.page)

    @property
    def preprocessor(self) -> PageReader:
        """Return the reader that turns pages with questions into batches."""
        return self._reader

    @property
    def learning_rate(self) -> float:
        """Return the peak learning rate; `Tuner.lr_find` sets it."""
        return self.recipe.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self.recipe = replace(self.recipe, learning_rate=value)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return AdamW over the trained weights, and the schedule."""
        optimizer = torch.optim.AdamW(
            self.trained().values(),
            self.recipe.learning_rate,
            weight_decay=self.recipe.weight_decay,
        )
        return self.scheduled(self.recipe.schedule, self.recipe.warmup, optimizer)

    def on_train_epoch_start(self) -> None:
        """Set training mode, because a loaded model starts in evaluation mode."""
        self.model.train()

    def training_step(self, batch: DocumentBatch) -> Tensor:
        """Return the loss of a batch of pages."""
        generator = step_generator(self.seed, self.global_step)
        loss = batch_loss(self.model, batch, self.recipe.noise, generator)
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch))
        return loss

    def validation_step(self, batch: DocumentBatch) -> None:
        """Score a batch."""
        self._evaluate(batch, "val")

    def test_step(self, batch: DocumentBatch) -> None:
        """Score a batch."""
        self._evaluate(batch, "test")

    def predict_step(self, batch: DocumentBatch) -> list[str]:
        """Return the answers to a batch."""
        return self._said(batch)

    def _evaluate(self, batch: DocumentBatch, stage: str) -> None:
        said = self._said(batch)
        pairs = list(zip(said, batch.samples, strict=True))
        figures: Mapping[str, float] = {
            "loss": float(batch_loss(self.model, batch)),
            f"anls/{self._variant}": _mean([anls(s, x.answers, self._variant) for s, x in pairs]),
            "exact_match": _mean([float(text in sample.answers) for text, sample in pairs]),
        }
        for name, value in figures.items():
            self.log(f"{stage}/{name}", value, batch_size=len(batch), sync_dist=True)

    @torch.no_grad()
    def _said(self, batch: DocumentBatch) -> list[str]:
        pages = self.model.scanned(batch.pages)
        encoded = self.model.encode(pages, batch.questions, batch.page_of)
        return [answer.text for answer in self.model.answer(encoded, batch.questions)]

    def frozen_identity(self) -> Mapping[str, str]:
        """Return the name and resolution of the pretrained model."""
        return {"document_model": self._name, "resolution": str(self._resolution)}

    def export(self, folder: Path) -> None:
        """Write the model, or its adapter, as a folder that transformers or PEFT can load."""
        self.model.network.save_pretrained(folder)
        self.model.processor.save_pretrained(folder)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
