"""The search for the question under which most of what is sensitive crosses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from numpy.random import Generator
from torch import Tensor

from qpriv.datasets.sample import VQASample
from qpriv.metrics.sensitivity import SENSITIVE_COVERAGE, crossing_weights, surviving_share
from qpriv.models.batch import VQABatch
from qpriv.models.features import VisualFeatures
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import Encode
from qpriv.pruning.image_ledger import anew
from qpriv.pruning.in_decoder import decision_at
from qpriv.pruning.policy import PruningPolicy

from .observation import batches, box_coverage

MOST_WORDS = 12
"""Longest question of a climb, in words and marks."""

PATIENCE = 8
"""A climb ends after so many steps that found nothing better."""

Score = Callable[[str], float]


class Asker:
    """Asks any question about all of some images, whose features are computed once.

    Args:
        model: The client's model.
        policy: Its pruning policy.
        encode: Its frozen encoders.
        samples: The images, one sample each.
        cut: The layer before which patches are counted.
        batch_size: Images of one decision.
    """

    def __init__(
        self,
        model: VisionLanguageModel,
        policy: PruningPolicy,
        encode: Encode,
        samples: Sequence[VQASample],
        cut: int,
        batch_size: int = 256,
    ) -> None:
        self.model, self.policy, self.cut = model, policy, cut
        self.questions, self._first = 0, samples[0]
        self._parts: list[tuple[VQABatch, VisualFeatures]] = []
        for part in batches(samples, batch_size):
            batch = model.preprocessor(part).to(model.device)
            self._parts.append((batch, encode(batch, policy.needs)))

    @torch.no_grad()
    def __call__(self, question: str) -> Tensor:
        """Return which patches of each image cross if this is asked first, ``[n, N]`` bool."""
        self.questions += 1
        model = self.model
        text = model.preprocessor([replace(self._first, question=question)]).to(model.device)
        vector = model.encode_questions(text.question_ids, text.question_mask)
        with anew(self.policy.ledger):
            return torch.cat([self._part(*part, text, vector) for part in self._parts])

    def _part(
        self, batch: VQABatch, features: VisualFeatures, text: VQABatch, vector: Tensor
    ) -> Tensor:
        asked = replace(features, question=vector.expand(len(batch), -1))
        if features.text_embeds is not None:
            embedded = self.model.clip_projections().text_embeds(vector[0])
            asked = replace(asked, text_embeds=embedded.expand(len(batch), -1))
        decision = self.policy.decide(asked, batch.samples)
        if decision.inside is not None:
            inputs = self.model.prepare(_with_text(batch, text), asked, decision)
            decision = decision_at(decision, inputs, self.cut)
        return crossing_weights(decision) > 0


def _with_text(batch: VQABatch, text: VQABatch) -> VQABatch:
    """Return the images of a batch with the text of a batch of one sample."""
    of_images = ("samples", "pixel_values", "sensitivity_pixels")
    named = {
        name: getattr(batch, name)
        if name in of_images
        else getattr(text, name).expand(len(batch), -1)
        for name in VQABatch.__struct_fields__
    }
    return VQABatch(**named)


def leak_of(model: VisionLanguageModel, samples: Sequence[VQASample]) -> Callable[[Tensor], float]:
    """Return what a search tries to make large, of patches that cross, ``[n, N]`` bool.

    It is the mean share of the sensitive tokens; where no image has any, of all tokens.

    Args:
        model: The model whose crop boxes are moved by.
        samples: The images.
    """
    coverage = torch.stack([box_coverage(model.preprocessor, each)[0] for each in samples])
    sensitive = coverage >= SENSITIVE_COVERAGE
    if not sensitive.any():
        sensitive = torch.ones_like(sensitive)
    rows = sensitive.any(dim=1)
    return lambda crossed: float(surviving_share(sensitive[rows], crossed[rows]).mean())


@dataclass(frozen=True)
class Found:
    """What a search has found.

    Args:
        plain: The worst question of the library.
        worst: The worst string, of the library or of a climb.
        adversarial: Questions that are worst together, the worst string first.
        questions: How many strings were tried.
    """

    plain: str
    worst: str
    adversarial: tuple[str, ...]
    questions: int


@dataclass(frozen=True)
class Search:
    """A search through a library of plain questions, and by climbs from its worst ones.

    Args:
        asker: Asks about the attacker's images.
        leak: What is to be made large; see `leak_of`.
        library: Plain questions.
        words: Words that a climb puts into questions.
        restarts: Number of climbs, each from another question of the library.
        steps: Steps of a climb, at most.
        edits: Strings that are tried in each step.
        over: Whether the time is up: no further string is tried then, the library apart.
    """

    asker: Asker
    leak: Callable[[Tensor], float]
    library: Sequence[str]
    words: Sequence[str]
    restarts: int = 4
    steps: int = 30
    edits: int = 24
    over: Callable[[], bool] = lambda: False

    def run(self, questions: int, rng: Generator) -> Found:
        """Return the worst question, the worst string, and several that are worst together.

        Args:
            questions: How many.
            rng: Draws what climbs try.
        """
        masks = {question: self.asker(question) for question in self.library}
        alone = {question: self.leak(mask) for question, mask in masks.items()}
        ranked = sorted(self.library, key=lambda question: -alone[question])
        for start in ranked[: self.restarts]:
            end = self._climb(start, torch.zeros_like(masks[start]), rng)
            masks[end] = self.asker(end)
            alone[end] = self.leak(masks[end])
        worst = max(alone, key=lambda question: alone[question])
        adversarial = [worst]
        while len(adversarial) < questions:
            crossed = torch.stack([masks[each] for each in adversarial]).any(dim=0)
            start = max(masks, key=lambda question: self.leak(crossed | masks[question]))
            end = self._climb(start, crossed, rng)
            masks[end] = self.asker(end)
            adversarial.append(end)
        return Found(ranked[0], worst, tuple(adversarial), self.asker.questions)

    def _climb(self, start: str, crossed: Tensor, rng: Generator) -> str:
        """Return the end of a climb to where most crosses beside what has crossed already."""

        def score(question: str) -> float:
            return self.leak(crossed | self.asker(question))

        best, level, idle = start, score(start), 0
        for _ in range(self.steps):
            if self.over() or idle == PATIENCE:
                break
            tried = {edited(best, self.words, rng) for _ in range(self.edits)}
            found = {question: score(question) for question in sorted(tried)}
            top = max(found, key=lambda question: found[question])
            best, level, idle = (
                (top, found[top], 0) if found[top] > level else (best, level, idle + 1)
            )
        return best


def edited(question: str, words: Sequence[str], rng: Generator) -> str:
    """Return a question with one word replaced, put in, left out, or moved.

    Args:
        question: Words and marks, divided by spaces.
        words: Words to choose from.
        rng: Chooses.
    """
    parts = question.split()
    place = int(rng.integers(len(parts)))
    word = words[int(rng.integers(len(words)))]
    match ("replace", "replace", "put in", "leave out", "move")[int(rng.integers(5))]:
        case "put in" if len(parts) < MOST_WORDS:
            parts.insert(place, word)
        case "leave out" if len(parts) > 1:
            del parts[place]
        case "move" if len(parts) > 1:
            parts.insert(int(rng.integers(len(parts) - 1)), parts.pop(place))
        case _:
            parts[place] = word
    return " ".join(parts)
