"""Policies that keep the best patches by a trained predictor's scores (source section 7)."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError, DataError, ModelError
from qpriv.models.encoder_record import EncoderRecord
from qpriv.models.features import FeatureSizes, VisualFeatures

from .budget import check_ratio, top_k
from .decision import PruningDecision
from .label import PolicyLabel, RankBy
from .policy import PruningPolicy
from .predictor import DynamicThresholdPredictor, PredictorOutput


class RankedPruning(PruningPolicy):
    """Base of the policies that keep the best patches by a trained predictor's scores.

    Args:
        predictor: Folder of a trained predictor, or the predictor itself.
        rank_by: ``fused`` ranks by ``alpha u - beta s``; ``utility`` by u, the source's literal
            text; ``sensitivity`` by -s, which is the source's sweep at alpha = 0.
        alpha: Weight of utility in the fused score.
        beta: Weight of sensitivity in the fused score.
        k_min: Safety floor in patches; None scales the source's 16 of 576 to the grid.

    Raises:
        ConfigError: If no predictor is given.
        ModelError: If the folder holds no predictor.
    """

    def __init__(
        self,
        predictor: str | Path | DynamicThresholdPredictor | None = None,
        rank_by: RankBy = "fused",
        alpha: float = 1.0,
        beta: float = 1.0,
        k_min: int | None = None,
    ) -> None:
        super().__init__(k_min)
        if predictor is None:
            raise ConfigError(
                f"{type(self).__name__} needs a predictor",
                remedy="give the folder of a trained student, or use RandomPruning",
            )
        if isinstance(predictor, str | Path):
            predictor = DynamicThresholdPredictor.from_pretrained(predictor).requires_grad_(False)
        self.predictor = predictor
        self.rank_by: RankBy = rank_by
        self.alpha, self.beta = alpha, beta

    @abstractmethod
    def ratios(self, output: PredictorOutput, samples: Sequence[VQASample]) -> list[float]:
        """Return the pruning ratio of each sample."""

    def check(self, sizes: FeatureSizes, num_patches: int) -> None:
        """Check, before long work, that floor and predictor fit a model."""
        super().check(sizes, num_patches)
        trained_on = self.predictor.config.sizes
        if trained_on != sizes:
            raise ModelError(
                f"the predictor takes {trained_on}, the backbone gives {sizes}",
                remedy="train the predictor on this backbone",
            )

    def check_encoders(self, encoders: EncoderRecord) -> None:
        """Check, before weights load, that the predictor was trained on these encoders."""
        self.predictor.check_encoders(encoders)

    def rank(self, output: PredictorOutput) -> Tensor:
        """Return the score patches are ranked by, ``[B, N]``; the highest stay."""
        if self.rank_by == "utility":
            return output.utility
        if self.rank_by == "sensitivity":
            return -output.sensitivity
        return self.alpha * output.utility - self.beta * output.sensitivity

    @torch.no_grad()
    def decide(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        """Return the best patches of each sample."""
        output = self.predictor(features)
        score = self.rank(output)
        ratios = self.ratios(output, samples)
        return PruningDecision(
            kept=top_k(score, self.counts(ratios, score.shape[1])),
            num_patches=score.shape[1],
            ratio=torch.tensor(ratios, dtype=torch.float64),
            utility=output.utility,
            sensitivity=output.sensitivity,
            score=score,
        )

    def _settings(self) -> tuple[str, ...]:
        weights = {"alpha": self.alpha, "beta": self.beta} if self.rank_by == "fused" else {}
        named = tuple(f"{key}={value:g}" for key, value in weights.items() if value != 1)
        return named + self._floor_setting()


class FixedRatioPruning(RankedPruning):
    """Drops the same share of every image.

    Args:
        ratio: Share of patches to drop, in [0, 1].
        rank_by: ``fused``, ``utility`` or ``sensitivity``; see `RankedPruning`.
        predictor: Folder of a trained predictor, or the predictor itself.
        alpha: Weight of utility in the fused score.
        beta: Weight of sensitivity in the fused score.
        k_min: Safety floor in patches; None scales the source's 16 of 576 to the grid.

    Raises:
        ConfigError: If the ratio is not in [0, 1], or no predictor is given.
        ModelError: If the folder holds no predictor.
    """

    kind = "fixed"

    def __init__(
        self,
        ratio: float = 0.5,
        rank_by: RankBy = "fused",
        predictor: str | Path | DynamicThresholdPredictor | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        k_min: int | None = None,
    ) -> None:
        check_ratio(ratio)
        super().__init__(predictor, rank_by, alpha, beta, k_min)
        self.ratio = ratio

    @classmethod
    def planned_ratio(cls, *, ratio: float | None = None, **arguments: Any) -> float | None:  # noqa: ANN401
        """Return the ratio that is given."""
        return ratio

    @property
    def name(self) -> PolicyLabel:
        """Return such as ``fixed(0.5,fused)``."""
        return PolicyLabel(self.kind, self.ratio, self.rank_by, self._settings())

    def ratios(self, output: PredictorOutput, samples: Sequence[VQASample]) -> list[float]:
        """Return the one ratio for every sample."""
        return [self.ratio] * len(samples)


class ConstantRatioPruning(FixedRatioPruning):
    """The control beside `DynamicPruning`: its mean ratio for every sample.

    Whatever the dynamic policy gains over this one it gains by choosing per sample. Arguments
    are those of `FixedRatioPruning`, whose decisions it shares; only the label differs.
    """

    kind = "constant"

    @classmethod
    def at_mean_of(cls, dynamic: "DynamicPruning", features: Iterable[VisualFeatures]) -> Self:
        """Return the control for a dynamic policy, its mean taken over some features.

        Args:
            dynamic: The policy to stand beside.
            features: Batches to average over, best of a validation split.

        Raises:
            DataError: If there are no features.
        """
        ratios = [ratio for batch in features for ratio in dynamic.predicted_ratios(batch)]
        if not ratios:
            raise DataError("no features to average the pruning ratio over")
        return cls(
            sum(ratios) / len(ratios),
            dynamic.rank_by,
            dynamic.predictor,
            dynamic.alpha,
            dynamic.beta,
            dynamic.k_min,
        )


class DynamicPruning(RankedPruning):
    """Drops of each image the share that the Dynamic Threshold Predictor asks for.

    Arguments are those of `RankedPruning`.
    """

    @property
    def name(self) -> PolicyLabel:
        """Return such as ``dtp(fused)``."""
        return PolicyLabel("dtp", None, self.rank_by, self._settings())

    def ratios(self, output: PredictorOutput, samples: Sequence[VQASample]) -> list[float]:
        """Return the predicted ratios."""
        return [float(ratio) for ratio in output.ratio]

    @torch.no_grad()
    def predicted_ratios(self, features: VisualFeatures) -> list[float]:
        """Return the predicted ratio of each row of features."""
        return [float(ratio) for ratio in self.predictor(features).ratio]
