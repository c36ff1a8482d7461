"""Answer scores as torchmetrics classes: sums over questions, right under any number of devices."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from qpriv.datasets.normalisation import says_nothing
from qpriv.datasets.sample import AnswerRule, AnswerType, VQASample
from qpriv.quantity import Quantity

from . import functional
from .functional import ANLSVariant, SlakeMode, VQAMode

ACCURACY = Quantity(
    name="accuracy",
    title="Accuracy",
    meaning="Share of questions answered right.",
    direction="use",
    headline=True,
    logged="val/accuracy",
)
EMPTY = Quantity(
    name="empty_predictions",
    title="Empty predictions",
    meaning="Share of predictions of which normalisation leaves nothing.",
)
LOSSES = (
    Quantity(
        name="val/loss",
        title="Validation loss",
        meaning="Mean cross-entropy of the gold answers' tokens on held-out questions.",
        unit="nats",
    ),
    Quantity(
        name="train/loss",
        title="Training loss",
        meaning="Mean loss of the logged training steps of an epoch.",
        unit="nats",
    ),
)


class AnswerScore(Metric, ABC):
    """Mean score over questions, kept as a sum and a count."""

    total: Tensor
    count: Tensor
    higher_is_better = True
    is_differentiable = False
    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    @abstractmethod
    def score(self, prediction: str, answers: Sequence[str]) -> float:
        """Return the score of one question in [0, 1]; sets with one gold answer use the first."""

    def update(self, predictions: Sequence[str], answers: Sequence[Sequence[str]]) -> None:
        """Add questions: a prediction each, and the gold answers of each."""
        for prediction, golds in zip(predictions, answers, strict=True):
            self.total += self.score(prediction, golds)
            self.count += 1

    def compute(self) -> Tensor:
        """Return the mean score in [0, 1]; NaN where there was no question."""
        return self.total / self.count


class VQAAccuracy(AnswerScore):
    """`functional.vqa_accuracy` over questions.

    Args:
        mode: How answers are normalised.
    """

    def __init__(self, mode: VQAMode = "official") -> None:
        super().__init__()
        self.mode: VQAMode = mode

    def score(self, prediction: str, answers: Sequence[str]) -> float:
        """Return the VQA accuracy of one question."""
        return functional.vqa_accuracy(prediction, answers, self.mode)


class ClosedExactMatch(AnswerScore):
    """`functional.closed_exact_match` over questions."""

    def score(self, prediction: str, answers: Sequence[str]) -> float:
        """Return 1 where the prediction is the gold answer."""
        return functional.closed_exact_match(prediction, answers[0])


class ClosedFirstWord(AnswerScore):
    """`functional.closed_first_word` over questions."""

    def score(self, prediction: str, answers: Sequence[str]) -> float:
        """Return 1 where the one yes or no of the prediction is the gold answer."""
        return functional.closed_first_word(prediction, answers[0])


class LlavaMedClosed(AnswerScore):
    """`functional.llava_med_closed` over questions; for comparison with published figures only."""

    def score(self, prediction: str, answers: Sequence[str]) -> float:
        """Return LLaVA-Med's closed score of one question."""
        return functional.llava_med_closed(prediction, answers[0])


class OpenRecall(AnswerScore):
    """`functional.open_recall` over questions."""

    def score(self, prediction: str, answers: Sequence[str]) -> float:
        """Return the word recall of one question."""
        return functional.open_recall(prediction, answers[0])


class GQAAccuracy(AnswerScore):
    """`functional.gqa_accuracy` over questions.

    Args:
        strict: Compare the raw strings.
    """

    def __init__(self, strict: bool = False) -> None:
        super().__init__()
        self.strict = strict

    def score(self, prediction: str, answers: Sequence[str]) -> float:
        """Return 1 where the prediction is the gold answer."""
        return functional.gqa_accuracy(prediction, answers[0], self.strict)


class SlakeMatch(AnswerScore):
    """`functional.slake_match` over questions of one language.

    Args:
        lang: Language of the questions.
        mode: How answers are compared.
    """

    def __init__(self, lang: Literal["en", "zh"] = "en", mode: SlakeMode = "exact") -> None:
        super().__init__()
        self.lang: Literal["en", "zh"] = lang
        self.mode: SlakeMode = mode

    def score(self, prediction: str, answers: Sequence[str]) -> float:
        """Return 1 where the prediction is the gold answer."""
        return functional.slake_match(prediction, answers[0], self.lang, self.mode)


class ANLS(AnswerScore):
    """`functional.anls` over questions.

    Args:
        variant: Which of the two definitions.
        threshold: Where a similarity stops to count.
    """

    def __init__(self, variant: ANLSVariant = "rrc", threshold: float = 0.5) -> None:
        super().__init__()
        self.variant: ANLSVariant = variant
        self.threshold = threshold

    def score(self, prediction: str, answers: Sequence[str]) -> float:
        """Return the similarity of one question."""
        return functional.anls(prediction, answers, self.variant, self.threshold)


def score_sample(prediction: str, sample: VQASample, rule: AnswerRule) -> float:
    """Return the score in [0, 1] of an answer to a sample's question.

    Raises:
        ValueError: If the sample has no gold answer: test splits have no score.
    """
    if not sample.answer:
        raise ValueError(f"{sample.key} has no gold answer")
    closed = sample.answer_type is AnswerType.CLOSED
    match rule:
        case "exact":
            return functional.closed_answer(prediction, sample.answer)
        case "gqa" | "gqa_strict":
            return functional.gqa_accuracy(prediction, sample.answer, rule == "gqa_strict")
        case "medical" if sample.lang == "zh":
            return functional.slake_match(prediction, sample.answer, "zh")
        case "medical" if closed:
            return functional.closed_answer(prediction, sample.answer)
        case "llava_med" if closed:
            return functional.llava_med_closed(prediction, sample.answer)
        case "medical":
            return functional.open_answer(prediction, sample.answer)
        case "llava_med":
            return functional.open_recall(prediction, sample.answer)
        case "official" | "official_2016" | "always" | "okvqa":
            return functional.vqa_accuracy(prediction, sample.answers, rule)


class AnswerScores(Metric):
    """The score of a set by its rule: in total, of closed and of open questions, of each type.

    The total is the mean over all questions, hence the mean of closed and open weighted by
    their numbers. Samples without a gold answer (test splits) are counted and not scored.
    Predictions and gold answers of which normalisation leaves nothing, such as ``A``, are scored and
    counted: ``empty_predictions``, ``empty_golds``.

    Args:
        rule: How an answer is judged; it stands in the keys of `compute`.
        question_types: Values of ``question_type`` or ``answer_type`` in ``sample.meta`` to score
            apart, such as ``what`` or ``number``. They are fixed here so that every device sums
            the same ones.
    """

    totals: Tensor
    counts: Tensor
    without_gold: Tensor
    empty_predictions: Tensor
    empty_golds: Tensor
    higher_is_better = True
    full_state_update = False

    def __init__(self, rule: AnswerRule = "exact", question_types: Sequence[str] = ()) -> None:
        super().__init__()
        self.rule: AnswerRule = rule
        self.groups = ("", "closed", "open", *question_types)
        zeros = torch.zeros(len(self.groups), dtype=torch.float64)
        self.add_state("totals", zeros, dist_reduce_fx="sum")
        self.add_state("counts", zeros.long(), dist_reduce_fx="sum")
        for name in ("without_gold", "empty_predictions", "empty_golds"):
            self.add_state(name, torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, predictions: Sequence[str], samples: Sequence[VQASample]) -> None:
        """Add the answers to some samples."""
        for prediction, sample in zip(predictions, samples, strict=True):
            if not sample.answer:
                self.without_gold += 1
                continue
            self.empty_predictions += says_nothing(prediction)
            self.empty_golds += says_nothing(sample.answer)
            own = (str(sample.meta.get(kind, "")) for kind in ("question_type", "answer_type"))
            names = {"", sample.answer_type.lower(), *own}
            rows = [row for row, group in enumerate(self.groups) if group in names]
            self.totals[rows] += score_sample(prediction, sample, self.rule)
            self.counts[rows] += 1

    def compute(self) -> dict[str, Tensor]:
        """Return ``accuracy_<rule>`` and ``accuracy_<rule>/<group>`` for each group met."""
        return {
            f"accuracy_{self.rule}" + (f"/{group}" if group else ""): total / count
            for group, total, count in zip(self.groups, self.totals, self.counts, strict=True)
            if count > 0
        }
