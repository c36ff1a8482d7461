"""The Dynamic Threshold Predictor: the student that decides alone (source sections 5 and 6)."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from qpriv.errors import ModelError
from qpriv.models.encoder_record import EncoderRecord, load_record
from qpriv.models.features import FeatureSizes, VisualFeatures

from .sensitivity import SensitivityHead
from .utility import UtilityScorer, scaled_projection_dim

WEIGHTS, CONFIG = "model.safetensors", "config.json"


@dataclass(frozen=True)
class PredictorConfig:
    """Sizes and start values; the defaults are the source's for LLaVA-1.5.

    Args:
        patch_dim: Values of a CLIP patch.
        pooled_dim: Values of the pooled image vector.
        question_dim: Values of the question vector.
        sensitivity_dim: Values of a DINOv2 patch.
        projection_dim: Values ``P`` of the utility branch's projections.
        head_dim: Hidden width of the sensitivity head.
        hidden_dim: Hidden width of the ratio predictor.
        alpha: Weight of utility in the fused score.
        beta: Weight of sensitivity in the fused score.
        gamma: Steepness of the soft mask at the start of training.
    """

    patch_dim: int = 1024
    pooled_dim: int = 1024
    question_dim: int = 768
    sensitivity_dim: int = 384
    projection_dim: int = 256
    head_dim: int = 128
    hidden_dim: int = 512
    alpha: float = 1.0
    beta: float = 1.0
    gamma: float = 3.0

    @classmethod
    def scaled(cls, sizes: FeatureSizes) -> Self:
        """Return the config for a backbone, hidden widths in the source's proportions.

        They are a quarter and a half of the patch width and a third of the sensitivity width,
        but at least 32, 64 and 32.

        >>> PredictorConfig.scaled(FeatureSizes(1024, 1024, 768, 384)) == PredictorConfig()
        True
        """
        return cls(
            patch_dim=sizes.patch,
            pooled_dim=sizes.pooled,
            question_dim=sizes.question,
            sensitivity_dim=sizes.sensitivity,
            projection_dim=scaled_projection_dim(sizes.patch),
            head_dim=max(32, sizes.sensitivity // 3),
            hidden_dim=max(64, sizes.patch // 2),
        )

    @property
    def sizes(self) -> FeatureSizes:
        """Return the widths of the features a predictor takes."""
        return FeatureSizes(
            self.patch_dim, self.pooled_dim, self.question_dim, self.sensitivity_dim
        )


class RatioPredictor(nn.Module):
    """MLP_tau: predicts the pruning ratio of a sample from what it sees of it.

    Args:
        pooled_dim: Values of the pooled image vector.
        question_dim: Values of the question vector.
        hidden_dim: Width of the two hidden layers.
    """

    def __init__(
        self, pooled_dim: int = 1024, question_dim: int = 768, hidden_dim: int = 512
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(pooled_dim + question_dim + 3, hidden_dim),
            nn.GELU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.GELU(),
            nn.Linear(hidden_dim, 1),
        )

    def forward(self, pooled: Tensor, question: Tensor, sensitivity: Tensor) -> Tensor:
        """Return the ratio, ``[B]`` in (0, 1).

        Args:
            pooled: Pooled image vectors, ``[B, D]``.
            question: Question vectors, ``[B, Dt]``.
            sensitivity: Sensitivity of every CLIP patch, ``[B, N]``.
        """
        seen = torch.cat((pooled, question, sensitivity_summary(sensitivity)), dim=-1)
        values: Tensor = self.layers(seen)
        return torch.sigmoid(values.squeeze(-1))


def sensitivity_summary(sensitivity: Tensor) -> Tensor:
    """Return mean, maximum and share above 0.5 of each row, ``[B, N]`` to ``[B, 3]``.

    >>> sensitivity_summary(torch.tensor([[0.0, 0.5, 0.25, 1.0]])).tolist()
    [[0.4375, 1.0, 0.25]]
    """
    above = (sensitivity > 0.5).to(sensitivity.dtype)
    return torch.stack(
        (sensitivity.mean(dim=-1), sensitivity.amax(dim=-1), above.mean(dim=-1)), dim=-1
    )


@dataclass(frozen=True)
class PredictorOutput:
    """What the student thinks of a batch.

    Args:
        utility: Utility u of every patch, ``[B, N]`` in (0, 1).
        sensitivity: Sensitivity s of every patch on the CLIP grid, ``[B, N]`` in (0, 1).
        mask_logits: ``gamma * (alpha u - beta s)``, ``[B, N]``; their sigmoid is the soft mask.
        ratio: Pruning ratio rho, ``[B]`` in (0, 1).
    """

    utility: Tensor
    sensitivity: Tensor
    mask_logits: Tensor
    ratio: Tensor

    @property
    def soft_mask(self) -> Tensor:
        """Return the soft mask m, ``[B, N]`` in (0, 1): what distillation fits."""
        return torch.sigmoid(self.mask_logits)


class DynamicThresholdPredictor(nn.Module):
    """Utility scorer, sensitivity head, ratio predictor and the steepness gamma.

    Args:
        config: Sizes and start values.
    """

    alpha: Tensor
    beta: Tensor

    def __init__(self, config: PredictorConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or PredictorConfig()
        self.encoders: EncoderRecord | None = None
        """The encoders it is trained on; None where a folder of an older version does not say."""
        self.utility_scorer = UtilityScorer(
            config.patch_dim, config.question_dim, config.projection_dim
        )
        self.sensitivity_head = SensitivityHead(config.sensitivity_dim, config.head_dim)
        self.ratio_predictor = RatioPredictor(
            config.pooled_dim, config.question_dim, config.hidden_dim
        )
        self.gamma = nn.Parameter(torch.tensor(float(config.gamma)))
        self.register_buffer("alpha", torch.tensor(float(config.alpha)))
        self.register_buffer("beta", torch.tensor(float(config.beta)))

    def forward(self, features: VisualFeatures) -> PredictorOutput:
        """Return scores, soft mask and ratio of a batch."""
        features = features.to(self.gamma.device, self.gamma.dtype)
        utility = self.utility_scorer(features.patches, features.question)
        sensitivity = self.sensitivity_head.aligned(features)
        fused = self.alpha * utility - self.beta * sensitivity
        ratio = self.ratio_predictor(features.pooled, features.question, sensitivity)
        return PredictorOutput(utility, sensitivity, self.gamma * fused, ratio)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``model.safetensors``, ``config.json``, and ``backbone.json`` where it is known."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), folder / WEIGHTS)
        (folder / CONFIG).write_text(json.dumps(asdict(self.config), indent=2) + "\n")
        if self.encoders is not None:
            self.encoders.save(folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Load what `save_pretrained` wrote.

        Raises:
            ModelError: If a file is missing or broken, or the weights do not fit the config.
        """
        folder = Path(folder)
        for name in (CONFIG, WEIGHTS):
            if not (folder / name).is_file():
                raise ModelError(
                    f"no predictor here: {name} is missing",
                    where=str(folder),
                    remedy="train one with a student config, or give the folder of one",
                )
        try:
            predictor = cls(PredictorConfig(**json.loads((folder / CONFIG).read_text())))
            predictor.load_state_dict(load_file(folder / WEIGHTS))
        except (ValueError, TypeError, RuntimeError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ModelError(f"not a predictor: {reason}", where=str(folder)) from error
        predictor.encoders = load_record(folder)
        return predictor

    def check_encoders(self, given: EncoderRecord) -> None:
        """Check that a backbone has the encoders that this was trained on.

        A folder of an older version does not say which they were: then only the widths of the
        features can be checked, and are.

        Raises:
            ModelError: If it has other ones.
        """
        if self.encoders is None or not (other := self.encoders.unlike(given)):
            return
        raise ModelError(
            f"the predictor was trained on the backbone {self.encoders.backbone}, whose "
            f"{' and '.join(other)} encoder is not that of {given.backbone}",
            remedy="train the predictor on this backbone, or give the one it was trained on",
        )
