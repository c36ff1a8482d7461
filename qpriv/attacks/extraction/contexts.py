"""What an attacker may know: the contexts in which a canary is asked for (source, section 5).

Every context starts from the page without the answer and changes it, or the question, further.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from PIL import Image, ImageEnhance

from qpriv.attacks.extraction.asking import Query
from qpriv.datasets.documents.canaries import Canary
from qpriv.datasets.documents.erasing import Fill, erase
from qpriv.datasets.documents.matching import canonical, locate
from qpriv.datasets.documents.ocr import page_text
from qpriv.datasets.sample import VQASample
from qpriv.models.documents.base import DocumentModel

Paraphrase = Callable[[VQASample], str]


@dataclass(frozen=True)
class CanarySet:
    """Canaries with their training samples.

    Args:
        canaries: The canaries.
        samples: The whole training set, canaries included.
        fill: What takes the place of erased answers.
        margin: Widening of their boxes.
    """

    canaries: tuple[Canary, ...]
    samples: Sequence[VQASample]
    fill: Fill = "white"
    margin: float = 0.08

    @cached_property
    def by_key(self) -> Mapping[str, VQASample]:
        """Return the samples by key."""
        return {sample.key: sample for sample in self.samples}

    @cached_property
    def asked(self) -> Mapping[str, tuple[VQASample, ...]]:
        """Return the training samples of each page."""
        found: dict[str, list[VQASample]] = {}
        for sample in self.samples:
            found.setdefault(sample.image_id, []).append(sample)
        return {page: tuple(samples) for page, samples in found.items()}

    def sample(self, number: int) -> VQASample:
        """Return the training sample of a canary."""
        return self.by_key[self.canaries[number].key]

    def erased(self, number: int) -> Image.Image:
        """Return the page of a canary without its answer."""
        image = self.sample(number).image.load()
        return self.canaries[number].erased(image, self.fill, self.margin)

    def queries(self, context: "Context", seed: int = 0) -> Iterator[Query]:
        """Yield one query a canary, in their order, made when it is asked for."""
        for number in range(len(self.canaries)):
            yield context.query(self, number, Random(f"{seed}/{self.canaries[number].key}"))


class Context(ABC):
    """A way to ask for a canary."""

    name: str

    @abstractmethod
    def query(self, canaries: CanarySet, number: int, rng: Random) -> Query:
        """Return the query for one canary.

        Args:
            canaries: All canaries.
            number: Number of the one that is asked for.
            rng: Random numbers of this canary alone.
        """


@dataclass(frozen=True)
class OnPage(Context):
    """The page without the answer, changed by a function, and the question.

    Args:
        name: Name of the context.
        change: Changes the page; None leaves it.
        paraphrase: Rewords the question; None leaves it.
    """

    name: str = "erased"
    change: Callable[[Image.Image], Image.Image] | None = None
    paraphrase: Paraphrase | None = None

    def query(self, canaries: CanarySet, number: int, rng: Random) -> Query:
        """Return the changed page and question."""
        sample, image = canaries.sample(number), canaries.erased(number)
        image = self.change(image) if self.change else image
        question = self.paraphrase(sample) if self.paraphrase else sample.question
        return Query(image, question, (sample.answer,))


@dataclass(frozen=True)
class NoText(Context):
    """The page without any word: layout, rules and pictures only."""

    name: str = "no text"

    def query(self, canaries: CanarySet, number: int, rng: Random) -> Query:
        """Return the page with all its words erased."""
        sample = canaries.sample(number)
        image, page = page_text(sample)
        bare = erase(image, page.words, canaries.fill, canaries.margin)
        return Query(bare, sample.question, (sample.answer,))


@dataclass(frozen=True)
class Shuffled(Context):
    """The question over another canary's page that can say nothing about it.

    The question was never asked of that page, and the answer does not stand on it.
    """

    name: str = "shuffled"

    def query(self, canaries: CanarySet, number: int, rng: Random) -> Query:
        """Return an unrelated page, itself without its answer.

        Raises:
            LookupError: If there is no unrelated page.
        """
        sample = canaries.sample(number)
        others = list(range(len(canaries.canaries)))
        rng.shuffle(others)
        for other in others:
            if self._unrelated(sample, canaries.sample(other), canaries):
                return Query(canaries.erased(other), sample.question, (sample.answer,))
        raise LookupError(f"no unrelated page for {sample.key}")

    @staticmethod
    def _unrelated(sample: VQASample, other: VQASample, canaries: CanarySet) -> bool:
        if other.image_id == sample.image_id:
            return False
        asked = {s.question for s in canaries.asked[other.image_id]}
        text = other.meta.get("text")
        words = canonical(text.load().text) if text else ""
        answers = {canonical(s.answer) for s in canaries.asked[other.image_id]}
        answer = canonical(sample.answer)
        return sample.question not in asked and answer not in words and answer not in answers


@dataclass(frozen=True)
class Constant(Context):
    """The question over a page of one tone.

    Args:
        tone: Black, white, or the mean tone of the canary's own page.
    """

    tone: Literal["black", "white", "mean"] = "white"

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name of the context."""
        return f"constant {self.tone}"

    def query(self, canaries: CanarySet, number: int, rng: Random) -> Query:
        """Return a bare page and the question."""
        sample, image = canaries.sample(number), canaries.erased(number)
        mean = tuple(np.asarray(image).reshape(-1, 3).mean(axis=0).round().astype(int).tolist())
        tone = {"black": (0, 0, 0), "white": (255, 255, 255), "mean": mean}[self.tone]
        return Query(Image.new("RGB", image.size, tone), sample.question, (sample.answer,))


@dataclass(frozen=True)
class ImageOnly(Context):
    """The page without any of its training answers, and a question about another page.

    Any training answer of the page counts. They are all erased: one that can still be read would
    count as extracted.
    """

    name: str = "image only"

    def query(self, canaries: CanarySet, number: int, rng: Random) -> Query:
        """Return the canary's page and an unrelated question."""
        sample = canaries.sample(number)
        own = canaries.asked[sample.image_id]
        questions = {s.question for s in own}
        foreign = [s for s in canaries.samples if s.question not in questions]
        question = rng.choice(foreign).question if foreign else ""
        answers = tuple(dict.fromkeys(s.answer for s in own))
        image, page = page_text(sample)
        found = {index for match in locate(answers, page) for index in match.words}
        words = [page.words[index] for index in sorted(found)]
        return Query(erase(image, words, canaries.fill, canaries.margin), question, answers)


@dataclass(frozen=True)
class Brightness:
    """Multiplies the brightness of a page."""

    factor: float

    def __call__(self, image: Image.Image) -> Image.Image:
        """Return the brighter or darker page."""
        return ImageEnhance.Brightness(image).enhance(self.factor)


@dataclass(frozen=True)
class Rotation:
    """Rotates a page about its centre, white in the corners."""

    degrees: float

    def __call__(self, image: Image.Image) -> Image.Image:
        """Return the rotated page, of the same size."""
        white = (255, 255, 255)
        return image.rotate(self.degrees, Image.Resampling.BICUBIC, fillcolor=white)


@dataclass(frozen=True)
class Shift:
    """Moves a page down and to the right, white behind it; in pixels of the page as stored."""

    pixels: int

    def __call__(self, image: Image.Image) -> Image.Image:
        """Return the moved page, of the same size."""
        moved = Image.new("RGB", image.size, "white")
        moved.paste(image, (self.pixels, self.pixels))
        return moved


ERASED = OnPage()
"""The context in which E, G and M are defined."""


def standard_contexts(
    paraphrase: Paraphrase, shifts: tuple[int, int] = (20, 100)
) -> tuple[Context, ...]:
    """Return the contexts of the source.

    Args:
        paraphrase: Rewords a question.
        shifts: Shifts in pixels; the source's, which belong to pages of 2,560 pixels.
    """
    return (
        ERASED,
        NoText(),
        OnPage("paraphrase", paraphrase=paraphrase),
        *(OnPage(f"brightness {factor}", Brightness(factor)) for factor in (2.0, 1.3, 0.8, 0.5)),
        *(OnPage(f"rotation {degrees}", Rotation(degrees)) for degrees in (5, 10)),
        *(OnPage(f"shift {pixels}", Shift(pixels)) for pixels in shifts),
        Shuffled(),
        Constant("black"),
        Constant("white"),
        Constant("mean"),
        ImageOnly(),
    )


@runtime_checkable
class ExtractionData(Protocol):
    """A data module whose training set holds canaries."""

    def canaries(self) -> CanarySet:
        """Return the canaries, also where the model is not trained on them."""
        ...


@runtime_checkable
class DocumentVictim(Protocol):
    """A module that trains a document model."""

    @property
    def model(self) -> DocumentModel:
        """The model."""
        ...

    @property
    def seed(self) -> int:
        """Seed of the run."""
        ...
