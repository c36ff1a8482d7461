"""Counts over the whole training set, made before answers are judged."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from qpriv.datasets.sample import VQASample

from .inferable import question_template
from .matching import canonical
from .page import PageText


@dataclass
class TrainingCounts:
    """What is counted over the whole training set before any answer is judged.

    Args:
        answers: Occurrences of every canonical answer.
        templates: For each question template the occurrences of its answers.
        pages: For each canonical candidate answer the number of pages it stands on.
    """

    answers: Counter[str] = field(default_factory=Counter)
    templates: dict[str, Counter[str]] = field(default_factory=dict)
    pages: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, training: Iterable[VQASample]) -> "TrainingCounts":
        """Count answers and templates; pages come in with `count_page`."""
        counts = cls()
        for sample in training:
            answer = canonical(sample.answer)
            counts.answers[answer] += 1
            template = question_template(sample.question)
            counts.templates.setdefault(template, Counter())[answer] += 1
        return counts

    def count_pages(self, pages: Iterable[PageText], candidates: set[str]) -> None:
        """Count the pages on which each candidate occurs as consecutive whole words."""
        longest = max((len(candidate) for candidate in candidates), default=0)
        for page in pages:
            words = [canonical(word.text) for word in page.words]
            self.pages.update(candidates & set(_runs(words, longest)))

    def is_usual(self, question: str, answer: str, share: float) -> bool:
        """Return whether an answer is the usual one to questions of this template."""
        asked = self.templates.get(question_template(question), Counter())
        total = asked.total()
        return total >= 10 and asked[canonical(answer)] > max(1, share * total)


def _runs(words: Sequence[str], longest: int) -> Iterator[str]:
    """Yield all runs of consecutive words up to a length in letters."""
    for start in range(len(words)):
        run = ""
        for word in words[start:]:
            run += word
            if len(run) > longest:
                break
            yield run
