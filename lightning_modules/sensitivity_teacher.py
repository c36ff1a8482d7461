"""`SensitivityTeacher`: learn which patches are private from image-level labels."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from qpriv.metrics.membership import area_under_curve
from qpriv.models.bag_batch import BagBatch, BagEncoder, BagPreprocessor
from qpriv.models.encoder_record import read_encoders
from qpriv.models.precision import new_tensors
from qpriv.models.registry import resolve_backbone
from qpriv.paradigms.recipe import Schedule
from qpriv.pruning.predictor import DynamicThresholdPredictor, PredictorConfig
from qpriv.pruning.sensitivity import BagPooling, bag_logits, bag_loss
from qpriv.result import Result

from .backbone_dims import read_shape
from .base import gather
from .predictor import PredictorModule


class SensitivityTeacher(PredictorModule):
    """Trains H_sens on D_priv's bag labels (source section 8), on frozen DINOv2 features.

    It exports ``predictor`` with a trained sensitivity head. The other parts are randomly
    initialised; the threshold teacher trains the next one.

    Args:
        backbone: ``tiny``, a LLaVA's hub id or folder, or a folder with llava, clip and dino.
        sensitivity_encoder: timm ViT for the sensitivity branch; null is the backbone's.
        pooling: How patch logits are pooled to a bag logit: ``mean``, ``top_k`` or ``lse``.
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Decoupled weight decay.
        schedule: How the learning rate falls.
        warmup: Share of all steps in which the learning rate rises.
        feature_cache: Folder of the frozen encoders' features; null recomputes them.
        seed: Seed of the initial weights; null is the run's ``seed_everything``.
    """

    def __init__(
        self,
        backbone: str = "tiny",
        sensitivity_encoder: str | None = None,
        pooling: BagPooling = "mean",
        learning_rate: float = 3e-4,
        weight_decay: float = 0.01,
        schedule: Schedule = "cosine",
        warmup: float = 0.0,
        feature_cache: str | None = "runs/.features",
        seed: int | None = None,
    ) -> None:
        super().__init__(learning_rate, weight_decay, schedule, warmup, seed)
        self.save_hyperparameters()
        read_shape(backbone)
        self._backbone, self._sensitivity_encoder = backbone, sensitivity_encoder
        self._cache = Path(feature_cache) if feature_cache else None
        self.pooling: BagPooling = pooling
        self._scored: list[tuple[str, bool, float, float]] = []

    @new_tensors(torch.float32)
    def configure_model(self) -> None:
        """Load the encoder and initialise the predictor, once."""
        if hasattr(self, "predictor"):
            return
        self.encoder = BagEncoder.from_pretrained(
            self._backbone, self._sensitivity_encoder, self._cache
        )
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            self.predictor = DynamicThresholdPredictor(PredictorConfig.scaled(self.encoder.sizes))
        names = resolve_backbone(self._backbone, None, self._sensitivity_encoder)
        self.predictor.encoders, _ = read_encoders(names)
        self.predictor.requires_grad_(False)
        self.predictor.sensitivity_head.requires_grad_(True)

    @property
    def preprocessor(self) -> BagPreprocessor:
        """Return the preprocessor that turns bags into batches."""
        return self.encoder.preprocessor

    def training_step(self, batch: BagBatch) -> Tensor:
        """Return the loss of a batch of bags."""
        loss = bag_loss(self._logits(batch), batch.labels, self.pooling)
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch))
        return loss

    def validation_step(self, batch: BagBatch) -> None:
        """Score a batch of bags."""
        self._score(batch)

    def test_step(self, batch: BagBatch) -> None:
        """Score a batch of bags."""
        self._score(batch)

    def on_validation_epoch_end(self) -> None:
        """Log loss and AUC of the bags."""
        self._report("val")

    def on_test_epoch_end(self) -> None:
        """Log loss and AUC of the bags."""
        self._report("test")

    def frozen_identity(self) -> Mapping[str, str]:
        """Return a digest of the encoder."""
        return {"sensitivity encoder": self.encoder.fingerprint}

    def _logits(self, batch: BagBatch) -> Tensor:
        patches = self.encoder(batch).to(self.predictor.gamma.dtype)
        return self.predictor.sensitivity_head.logits(patches)

    def _score(self, batch: BagBatch) -> None:
        logits = self._logits(batch)
        pooled = bag_logits(logits, self.pooling)
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            pooled, batch.labels.to(pooled.dtype), reduction="none"
        )
        rows = zip(batch.samples, pooled.tolist(), losses.tolist(), strict=True)
        self._scored += [(bag.key, bag.sensitive, score, loss) for bag, score, loss in rows]

    def _report(self, stage: str) -> None:
        rows = sorted(set(gather(self._scored)))
        self._scored = []
        labels, scores = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
        both = labels.any() and not labels.all()
        area = area_under_curve(scores, labels, np.ones(len(rows), np.int64)) if both else None
        figures = {f"{stage}/loss": sum(row[3] for row in rows) / len(rows), f"{stage}/auc": area}
        self.record(
            [
                Result(
                    name=name,
                    value=value,
                    n=len(rows),
                    seed=self.seed,
                    epoch=self.epoch,
                    measured_by=type(self).__name__,
                    dataset=rows[0][0].rsplit("/", 1)[0],
                    status="ok" if value is not None else "not applicable",
                )
                for name, value in figures.items()
            ]
        )
