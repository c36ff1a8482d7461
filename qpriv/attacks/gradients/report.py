"""Attacker priors, and helpers that build gradient results."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from qpriv.datasets.sample import VQASample
from qpriv.declaration import Attack, Row, aside
from qpriv.metrics.intervals import Interval, wilson_interval
from qpriv.metrics.means import IMAGE_GROUP, mean_result
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.quantity import Quantity
from qpriv.result import Result

PICTURE = Quantity(
    name="image_top1",
    title="Picture told among some, by the gradient",
    label="Picture told by the gradient",
    meaning="How often the gradient at the cut tells which of some candidate pictures was trained "
    "on.",
    direction="leak",
    baseline="image_top1_activation",
)
QUANTITIES = (
    PICTURE,
    Quantity(
        name="image_top1_activation",
        title="The same, by the activation",
        label="by the activation",
        meaning="How often the activation that crosses anyway tells it.",
        direction="leak",
    ),
    Quantity(
        name="tail_label_accuracy",
        title="Answer told at the tail",
        meaning="How often the gradient at a U-shaped split's second cut tells the answer.",
        direction="leak",
        baseline="tail_label_accuracy_prior",
    ),
    Quantity(
        name="tail_label_accuracy_prior",
        title="Baseline: commonest answer, tail",
        label="commonest answer",
        meaning="How often the question's commonest answer is right.",
    ),
    Quantity(
        name="label_accuracy_head",
        title="Answer off the head's gradient",
        meaning="How often an update of a trained head tells the answer's tokens.",
        direction="leak",
        baseline="label_accuracy_prior",
    ),
    Quantity(
        name="label_accuracy_lora",
        title="Answer matched on LoRA's gradients",
        meaning="How often an update of the adapter alone tells the answer among candidates.",
        direction="leak",
        baseline="label_accuracy_prior",
    ),
    Quantity(
        name="label_accuracy_prior",
        title="Baseline: commonest answer",
        label="commonest answer",
        meaning="How often the question's commonest answer is right.",
    ),
    Quantity(
        name="span_f1",
        title="Words told, F1",
        meaning="Words of question and answer that the span test finds in an update.",
        direction="leak",
        baseline="span_f1_prior",
    ),
    Quantity(
        name="span_f1_prior",
        title="Baseline: commonest words, F1",
        label="commonest words",
        meaning="What the task's commonest words give.",
    ),
    *aside(
        [
            Quantity(
                name="span_precision",
                title="Words told, precision",
                meaning="Share of what is found that is there.",
                direction="leak",
            ),
            Quantity(
                name="span_recall",
                title="Words told, recall",
                meaning="Share of what is there that is found.",
                direction="leak",
            ),
            Quantity(
                name="span_feasible",
                title="Updates the span test can read",
                meaning="Share of updates that show fewer inputs than they have rows.",
                direction="leak",
            ),
            Quantity(
                name="span_rank",
                title="Inputs that an update shows",
                meaning="Mean number of independent inputs.",
                unit="tokens",
                direction="leak",
            ),
            Quantity(
                name="gradient_norm",
                title="Norm of the update's gradient",
                meaning="Late in training gradients fade, and with them what can be read.",
            ),
            Quantity(
                name="cut_gradient_norm",
                title="Norm of the gradient at the cut",
                meaning="Late in training gradients fade, and with them what can be read.",
            ),
        ]
    ),
)
GRADIENT = Attack(
    name="gradient",
    title="Gradient attacks: labels, words and pictures",
    topic="Gradients",
    quantities=QUANTITIES,
    rows=(
        Row(
            what="labels of an update, `GradientInversionProbe`",
            who="federated server; no",
            holds="the update, the weights it sent, scenes of the task",
            knows="knows the policy",
            measures="answer off the trained head's gradient; answer matched on LoRA alone",
            beside="the question's commonest answer; gradient norm",
            source="Zhao et al. 2020; own",
        ),
        Row(
            what="words of an update: span test, same probe",
            who="federated server; no",
            holds="the update",
            knows="not needed",
            measures="precision, recall, F1; share of updates where it is feasible",
            beside="the task's commonest words; gradient norm",
            source="Petrov et al., NeurIPS 2024",
        ),
        Row(
            what="gradients at a cut, same probe",
            who="outsider at C and C_A; U-shaped server at C_B",
            holds="the gradient, the public base model, candidates",
            knows="knows the policy",
            measures="image among 16 (C, C_A), answer (C_B)",
            beside="chance; the same from activations; the commonest answer",
            source="own",
        ),
    ),
)
ATTACKS = (GRADIENT,)


@dataclass(frozen=True)
class Knowledge:
    """What an attacker learns from scenes of its own.

    Args:
        samples: Its scenes.
        answers: Their commonest answers, the candidates of every attack.
        template: Tokens that are in every text, which nobody needs to recover.
        guess: The commonest tokens beside them, as many as a text has on average.
    """

    samples: tuple[VQASample, ...]
    answers: tuple[str, ...]
    template: frozenset[int]
    guess: frozenset[int]

    @classmethod
    def of(cls, model: VisionLanguageModel, samples: Sequence[VQASample], candidates: int) -> Self:
        """Learn from some scenes; keep so many answers as candidates."""
        texts = [frozenset(model.preprocessor.text_tokens(sample)) for sample in samples]
        template = frozenset.intersection(*texts)
        content = Counter(token for text in texts for token in sorted(text - template))
        size = round(content.total() / len(texts))
        answers = Counter(sample.answer for sample in samples).most_common(candidates)
        return cls(
            tuple(samples),
            tuple(answer for answer, _ in answers),
            template,
            frozenset(token for token, _ in content.most_common(size)),
        )

    def guessed_answer(self, question: str) -> str:
        """Return the commonest answer to a question, or of all where it was never asked."""
        same = Counter(sample.answer for sample in self.samples if sample.question == question)
        return same.most_common(1)[0][0] if same else self.answers[0]


def answer_ids(model: VisionLanguageModel, sample: VQASample) -> list[int]:
    """Return the tokens of a sample's answer, the end token last."""
    prompt = model.preprocessor.prompt_tokens(sample)
    return model.preprocessor.text_tokens(sample)[len(prompt) :]


def share(name: str, hits: Sequence[bool], prior: float | None = None) -> Result:
    """Return a share of samples, one an image, with its Wilson interval.

    >>> share("label_accuracy", [True, True, False, True], 0.25).value
    0.75
    """
    return Result(
        name=name,
        value=sum(hits) / len(hits),
        n=len(hits),
        ci=wilson_interval(sum(hits), len(hits)),
        attack={} if prior is None else {"prior": prior},
    )


def mean(
    name: str,
    values: Sequence[float],
    unit: str = "",
    prior: float | None = None,
    bounds: Interval | None = None,
) -> Result:
    """Return a mean over samples, one an image, with its interval; NaN stands for none.

    >>> mean("span_rank", [1.0, float("nan"), 3.0]).n
    2
    """
    found = mean_result(name, values, {IMAGE_GROUP: range(len(values))}, unit=unit, bounds=bounds)
    return replace(found, attack={} if prior is None else {"prior": prior})
