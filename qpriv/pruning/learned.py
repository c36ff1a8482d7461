"""Policies that keep the best patches by a trained predictor's scores (source section 7)."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
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
from .image_ledger import Mask, Wish, ledger_for, wishes_of
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
        mask: ``per_question`` decides anew for each question, the source's text;
            ``first_question`` keeps the first decision on an image for all later questions about
            it; ``per_image`` sees no question: in its place stands the vector of a neutral one
            (`NEUTRAL_QUESTION`), in the utility and in the predicted ratio.
        image_budget: Most patches that may ever cross of an image, over all questions; those that
            have crossed already stand in for others when it is used up. None is no limit.

    Raises:
        ConfigError: If no predictor is given, or a setting is out of its range.
        ModelError: If the folder holds no predictor.
    """

    def __init__(
        self,
        predictor: str | Path | DynamicThresholdPredictor | None = None,
        rank_by: RankBy = "fused",
        alpha: float = 1.0,
        beta: float = 1.0,
        k_min: int | None = None,
        mask: Mask = "per_question",
        image_budget: int | None = None,
    ) -> None:
        super().__init__(k_min)
        self.mask: Mask = mask
        self.ledger = ledger_for(mask, image_budget)
        self.image_budget = image_budget
        if mask == "per_image":
            self.needs = frozenset({"neutral_question"})
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
        """Return the best patches of each sample, of those that may cross."""
        output, score, ratios, kept = self._ranked(features, samples)
        if self.ledger is not None:
            kept = self.ledger.settle(score, wishes_of(_images(samples), score, kept))
        return PruningDecision(
            kept=kept,
            num_patches=score.shape[1],
            ratio=torch.tensor(ratios, dtype=torch.float64),
            utility=output.utility,
            sensitivity=output.sensitivity,
            score=score,
        )

    @torch.no_grad()
    def wishes(self, features: VisualFeatures, samples: Sequence[VQASample]) -> list[Wish]:
        """Return what each sample would let cross, before the ledger has its say."""
        _, score, _, kept = self._ranked(features, samples)
        return wishes_of(_images(samples), score, kept)

    def predicted(self, features: VisualFeatures) -> PredictorOutput:
        """Return what the predictor makes of the features, and of the question if it may see it."""
        if self.mask == "per_image":
            features = replace(features, question=features.need("neutral_question"))
        output: PredictorOutput = self.predictor(features)
        return output

    def _ranked(
        self, features: VisualFeatures, samples: Sequence[VQASample]
    ) -> tuple[PredictorOutput, Tensor, list[float], tuple[Tensor, ...]]:
        """Return the predictor's output, scores, ratios, and the best patches of each sample."""
        output = self.predicted(features)
        score, ratios = self.rank(output), self.ratios(output, samples)
        return output, score, ratios, top_k(score, self.counts(ratios, score.shape[1]))

    def _settings(self) -> tuple[str, ...]:
        weights = {"alpha": self.alpha, "beta": self.beta} if self.rank_by == "fused" else {}
        named = tuple(f"{key}={value:g}" for key, value in weights.items() if value != 1)
        mask = () if self.mask == "per_question" else (f"mask={self.mask}",)
        budget = () if self.image_budget is None else (f"image_budget={self.image_budget}",)
        return (*named, *self._floor_setting(), *mask, *budget)


def _images(samples: Sequence[VQASample]) -> list[str]:
    return [sample.image_key for sample in samples]


class FixedRatioPruning(RankedPruning):
    """Drops the same share of every image.

    Args:
        ratio: Share of patches to drop, in [0, 1].
        rank_by: ``fused``, ``utility`` or ``sensitivity``; see `RankedPruning`.
        predictor: Folder of a trained predictor, or the predictor itself.
        alpha: Weight of utility in the fused score.
        beta: Weight of sensitivity in the fused score.
        k_min: Safety floor in patches; None scales the source's 16 of 576 to the grid.
        mask: What later questions about an image may change; see `RankedPruning`.
        image_budget: Most patches that may ever cross of an image; see `RankedPruning`.

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
        mask: Mask = "per_question",
        image_budget: int | None = None,
    ) -> None:
        check_ratio(ratio)
        super().__init__(predictor, rank_by, alpha, beta, k_min, mask, image_budget)
        self.ratio = ratio

    def check_patches(self, num_patches: int) -> None:
        """Check that floor and budget fit, also a single question's patches the budget."""
        super().check_patches(num_patches)
        (kept,) = self.counts([self.ratio], num_patches)
        if self.image_budget is not None and kept > self.image_budget:
            raise ConfigError(
                f"image_budget is {self.image_budget}, and one question keeps {kept} patches",
                where="--model.policy",
                remedy=f"choose {kept} or more, or a higher ratio",
            )

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
            dynamic.mask,
            dynamic.image_budget,
        )


class DynamicPruning(RankedPruning):
    """Drops of each image the share that the Dynamic Threshold Predictor asks for.

    The predictor sees the question, and so does whoever asks have a say in the share. A least
    share bounds it, steps make it tell less, and so do ``mask`` and ``image_budget``.

    Args:
        predictor: Folder of a trained predictor, or the predictor itself.
        rank_by: ``fused``, ``utility`` or ``sensitivity``; see `RankedPruning`.
        alpha: Weight of utility in the fused score.
        beta: Weight of sensitivity in the fused score.
        k_min: Safety floor in patches; None scales the source's 16 of 576 to the grid.
        mask: What later questions about an image may change; see `RankedPruning`.
        image_budget: Most patches that may ever cross of an image; see `RankedPruning`.
        min_ratio: Least share of every image that is dropped, whatever the predictor asks for.
        ratio_step: Round what the predictor asks for to the nearest multiple of this, in (0, 1];
            None takes it as it is.

    Raises:
        ConfigError: If no predictor is given, or a setting is out of its range.
        ModelError: If the folder holds no predictor.
    """

    def __init__(
        self,
        predictor: str | Path | DynamicThresholdPredictor | None = None,
        rank_by: RankBy = "fused",
        alpha: float = 1.0,
        beta: float = 1.0,
        k_min: int | None = None,
        mask: Mask = "per_question",
        image_budget: int | None = None,
        min_ratio: float = 0.0,
        ratio_step: float | None = None,
    ) -> None:
        check_ratio(min_ratio)
        if ratio_step is not None and not 0 < ratio_step <= 1:
            raise ConfigError(f"ratio_step is {ratio_step}", remedy="choose above 0, to 1, or null")
        super().__init__(predictor, rank_by, alpha, beta, k_min, mask, image_budget)
        self.min_ratio, self.ratio_step = min_ratio, ratio_step

    @property
    def name(self) -> PolicyLabel:
        """Return such as ``dtp(fused)`` or ``dtp(fused,ratio_step=0.25)``."""
        least = (f"min_ratio={self.min_ratio:g}",) if self.min_ratio else ()
        step = () if self.ratio_step is None else (f"ratio_step={self.ratio_step:g}",)
        return PolicyLabel("dtp", None, self.rank_by, (*self._settings(), *least, *step))

    def ratios(self, output: PredictorOutput, samples: Sequence[VQASample]) -> list[float]:
        """Return the predicted ratios, in steps and above the least share."""
        return [self._bounded(float(ratio)) for ratio in output.ratio]

    @torch.no_grad()
    def predicted_ratios(self, features: VisualFeatures) -> list[float]:
        """Return the ratio that each row of features would be pruned by."""
        return self.ratios(self.predicted(features), ())

    def check_patches(self, num_patches: int) -> None:
        """Check that floor and budget fit, also the least share the floor."""
        super().check_patches(num_patches)
        (least,) = self.counts([1.0], num_patches)
        if self.min_ratio and least > round((1 - self.min_ratio) * num_patches):
            raise ConfigError(
                f"min_ratio is {self.min_ratio:g}, but k_min keeps {least} of {num_patches} patches",
                where="--model.policy",
                remedy="choose a lower min_ratio or k_min",
            )

    def _bounded(self, ratio: float) -> float:
        if self.ratio_step is not None:
            ratio = min(1.0, round(ratio / self.ratio_step) * self.ratio_step)
        return max(self.min_ratio, ratio)
