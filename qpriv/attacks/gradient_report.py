"""What an attacker knows before it looks at a gradient, and what a figure of it looks like."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from qpriv.datasets.sample import VQASample
from qpriv.metrics.intervals import mean_interval, wilson_interval
from qpriv.models.vision_language import VisionLanguageModel
from qpriv.result import Result


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


def mean(name: str, values: Sequence[float], unit: str = "", prior: float | None = None) -> Result:
    """Return a mean over samples, one an image, with its interval; NaN stands for none.

    >>> mean("span_rank", [1.0, float("nan"), 3.0]).n
    2
    """
    known = [value for value in values if not np.isnan(value)]
    if not known:
        return Result(name=name, value=None, n=0, unit=unit, status="not applicable")
    return Result(
        name=name,
        value=float(np.mean(known)),
        n=len(known),
        ci=mean_interval(known, range(len(known))),
        unit=unit,
        attack={} if prior is None else {"prior": prior},
    )
