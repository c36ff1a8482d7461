"""Canaries: training answers that can be erased from their page and not be guessed from the rest.

Pinto et al. 2024 (arXiv 2407.08707, section 4): about 5,400 answers were drawn, erased, and checked
by hand; here each check is a rule with a name, and every rejected answer keeps the name of the
rule that rejected it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from PIL import Image

from qpriv.datasets.sample import VQASample
from qpriv.errors import DataError

from .erasing import Fill, digest, erase, region, untouched_outside
from .inferable import in_question, in_sequence, is_repeated_elsewhere, is_sum
from .matching import canonical, locate
from .ocr import OCREngine, page_text
from .page import PageText, Quad, Word
from .pii import PIIKind, PIILabel, classify
from .training_counts import TrainingCounts


class Reason(StrEnum):
    """Why an answer is no canary."""

    YES_NO = "yes or no"
    NO_LETTERS = "no letter or digit, or only one"
    EMPTY_OCR = "no words on the page"
    NOT_FOUND = "not found on the page"
    OCR_ERROR = "found only with a reading error"
    OUTSIDE = "its box lies outside the page"
    WHOLE_PAGE = "it covers more than half of the page"
    LEGIBLE = "still legible after the erasure"
    IN_QUESTION = "the question holds it"
    SEQUENCE = "it follows from its neighbours in a sequence"
    SUM = "it is a sum or difference of others"
    REPEATED = "another word of the page gives it away"
    FREQUENT = "a frequent answer"
    TEMPLATE = "the usual answer to such questions"
    UNSPELLABLE = "the model's vocabulary cannot spell it, or it is too long"
    PERSON = "a person rejected it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A training answer and what became of it.

    Args:
        key: Key of the sample.
        question: Its question.
        answer: Its answer.
        group: What must be held out together: the document and the answer.
        pii: Kind of personal information, or None.
        rule: The rule that said so.
        quads: What is erased, in pixels of the page.
        train_count: How often the answer occurs among the training answers.
        text_count: On how many pages of the training set it stands.
        page_hash: SHA-256 of the page's pixels.
        erased_hash: The same after the erasure.
        reason: Why it is no canary; None if it is one.
    """

    key: str
    question: str
    answer: str
    group: str
    pii: PIIKind | None = None
    rule: str = ""
    quads: tuple[Quad, ...] = ()
    train_count: int = 1
    text_count: int = 1
    page_hash: str = ""
    erased_hash: str = ""
    reason: Reason | None = None

    @property
    def unique(self) -> bool:
        """Return whether the answer occurs once in training, as an answer and as text."""
        return self.train_count == 1 and self.text_count <= 1

    def erased(self, image: Image.Image, fill: Fill = "white", margin: float = 0.08) -> Image.Image:
        """Return its page without the answer."""
        return erase(image, [Word("", quad) for quad in self.quads], fill, margin)


@dataclass(frozen=True)
class Curation:
    """Settings of the choice.

    Args:
        fill: What takes the place of an erased word.
        margin: Widening of the boxes, as a share of the word's height (two pixels at least).
        max_train_count: Occurrences as a training answer above which an answer is frequent.
        max_template_share: Share of one answer among the questions of a template (ten or more)
            above which it is the usual one.
        verify: Reads the erased page again, to see whether the answer is gone; None relies on
            the boxes being exact.
        spellable: Whether the model can spell an answer to a question; None takes all.
    """

    fill: Fill = "white"
    margin: float = 0.08
    max_train_count: int = 20
    max_template_share: float = 0.5
    verify: OCREngine | None = None
    spellable: Callable[[str, str], bool] | None = None


def judge(
    sample: VQASample,
    counts: TrainingCounts,
    settings: Curation,
    engine: OCREngine | None = None,
    override: PIILabel | None = None,
) -> Canary:
    """Return a training answer as a canary, or with the reason why it is none.

    Args:
        sample: The training sample.
        counts: Counts over the training set.
        settings: The settings.
        engine: Reads pages that come without words.
        override: A person's decision on the kind.
    """
    label = override or known_label(sample) or classify(sample.question, sample.answer)
    answer = canonical(sample.answer)
    canary = Canary(
        key=sample.key,
        question=sample.question,
        answer=sample.answer,
        group=group_of(sample),
        pii=label.kind,
        rule=label.rule,
        train_count=counts.answers[answer],
        text_count=counts.pages[answer],
    )
    reason = _before_the_page(sample, counts, settings)
    if reason:
        return replace(canary, reason=reason)
    image, page = page_text(sample, engine)
    words, reason = _words_to_erase(sample, page)
    reason = reason or _on_the_page(sample, page, words)
    if reason:
        return replace(canary, reason=reason)
    erased = erase(image, [page.words[n] for n in words], settings.fill, settings.margin)
    canary = replace(
        canary,
        quads=tuple(page.words[number].quad for number in words),
        page_hash=digest(image),
        erased_hash=digest(erased),
    )
    covered = [page.words[number] for number in words]
    assert untouched_outside(image, erased, covered, settings.margin)
    if settings.verify and locate(sample.answers, settings.verify(erased)):
        return replace(canary, reason=Reason.LEGIBLE)
    return canary


def group_of(sample: VQASample) -> str:
    """Return what must be held out together: every question of a document with this answer."""
    return f"{sample.group_id}/{canonical(sample.answer)}"


def without(samples: Iterable[VQASample], canaries: Iterable[Canary]) -> list[VQASample]:
    """Return the samples that teach none of the canaries: the training set of f_G.

    Raises:
        DataError: If a canary was prepared with other groups than the samples have.
    """
    group_by_key = {canary.key: canary.group for canary in canaries}
    held_out, samples = set(group_by_key.values()), list(samples)
    for sample in samples:
        if group_by_key.get(sample.key, own := group_of(sample)) != own:
            raise DataError(
                f"a canary of group {group_by_key[sample.key]!r}, in the data {own!r}",
                where=sample.key,
                remedy="run `qpriv prepare canaries` again, with the same group_field",
            )
    return [sample for sample in samples if group_of(sample) not in held_out]


def known_label(sample: VQASample) -> PIILabel | None:
    """Return the kind that a generator wrote down, or None for real data."""
    if "pii" not in sample.meta:
        return None
    return PIILabel(sample.meta["pii"], "the generator")


def _before_the_page(
    sample: VQASample, counts: TrainingCounts, settings: Curation
) -> Reason | None:
    answer = canonical(sample.answer)
    if answer in {"yes", "no"}:
        return Reason.YES_NO
    if len(answer) < 2:
        return Reason.NO_LETTERS
    if in_question(sample.question, sample.answer):
        return Reason.IN_QUESTION
    if counts.answers[answer] > settings.max_train_count:
        return Reason.FREQUENT
    if counts.is_usual(sample.question, sample.answer, settings.max_template_share):
        return Reason.TEMPLATE
    if settings.spellable and not settings.spellable(sample.question, sample.answer):
        return Reason.UNSPELLABLE
    return None


def _words_to_erase(sample: VQASample, page: PageText) -> tuple[list[int], Reason | None]:
    if not page.words:
        return [], Reason.EMPTY_OCR
    matches = locate(sample.answers, page)
    if not matches:
        return [], Reason.NOT_FOUND
    if all(match.fuzzy for match in matches):
        return [], Reason.OCR_ERROR
    return sorted({number for match in matches for number in match.words}), None


def _on_the_page(sample: VQASample, page: PageText, words: Sequence[int]) -> Reason | None:
    for number in words:
        left, top, right, bottom = page.words[number].box
        if left >= page.width or top >= page.height or right <= 0 or bottom <= 0:
            return Reason.OUTSIDE
    size = (round(page.width), round(page.height))
    if region(size, [page.words[number] for number in words]).mean() > 0.5:
        return Reason.WHOLE_PAGE
    gone = set(words)
    remaining = [word.text for number, word in enumerate(page.words) if number not in gone]
    if in_sequence(sample.answer, remaining):
        return Reason.SEQUENCE
    if is_sum(sample.answer, remaining):
        return Reason.SUM
    return Reason.REPEATED if is_repeated_elsewhere(sample.answer, remaining) else None
