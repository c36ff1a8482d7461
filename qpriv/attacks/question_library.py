"""Plain questions that anybody could ask about the images of a data set, and the words in them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, product

from qpriv.datasets.sample import VQASample

LEAST = 300
"""Fewest questions of a library: with fewer, the worst one is found by luck alone."""

ABOUT_PEOPLE = (
    "who is this person",
    "is there a face",
    "describe the face",
    "how old is the person",
    "what color is the person",
    "is this a man or a woman",
    "what is behind the person",
    "what is written in the image",
)
ABOUT_THINGS = (
    "is there a {word}",
    "is there a {word} in the image",
    "does the image contain a {word}",
    "what color is the {word}",
    "what is the {word}",
    "how many {word} are there",
    "where is the {word}",
    "describe the {word}",
)
EVERYDAY = tuple(
    "person face man woman child head hair eye mouth hand name text background object animal color".split()
)
"""Words that are asked about whatever the data set says; with them no library is too small."""
ABOUT_TWO = ("is there a {word} {other}", "does the image contain a {word} {other}")
FUNCTION_WORDS = frozenset(
    "a an and any are at be by can do does for from has have how if in is it many most much no not "
    "of on one or that the there these this those to two was what when where which who why with "
    "yes zero".split()
)
"""English words that no frame asks about; a search over words uses them all the same."""

_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_ENDING = re.compile(r"\s*[^\w\s]*\s*$")


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case, without punctuation.

    Of a language that is written without spaces a whole clause counts as one word.

    >>> words_of("Is there a T-shirt, or two ?")
    ('is', 'there', 'a', 't-shirt', 'or', 'two')
    """
    return tuple(_WORD.findall(text.lower()))


def vocabulary(samples: Iterable[VQASample], most: int | None = None) -> tuple[str, ...]:
    """Return the words of questions and answers, the commonest first.

    Args:
        samples: Where they come from.
        most: Return at most so many.
    """
    texts = chain.from_iterable((sample.question, sample.answer) for sample in samples)
    return _commonest((word for text in texts for word in words_of(text)), most)


def library_words(
    library: Iterable[str], samples: Iterable[VQASample], most: int = 500
) -> tuple[str, ...]:
    """Return the words of some questions, and the commonest ones of samples."""
    asked = [word for question in library for word in words_of(question)]
    return tuple(dict.fromkeys((*sorted(set(asked)), *vocabulary(samples, most))))


def question_library(samples: Sequence[VQASample], size: int = 400) -> tuple[str, ...]:
    """Return plain questions, the same for the same samples in any order.

    Up to half are the samples' own commonest questions. The others ask about people, and put the
    commonest words of the samples' questions and answers into a few frames, one or two at a time,
    before some everyday ones. All end as the samples' own questions do.

    Args:
        samples: The attacker's own samples.
        size: Number of questions.
    """
    own = _commonest((" ".join(sample.question.split()) for sample in samples), size // 2)
    (ending, *_) = _commonest((_ending(sample.question) for sample in samples), 1) or (" ?",)
    framed = (f"{text}{ending}" for text in _framed(vocabulary(samples)))
    return tuple(islice(_distinct(chain(own, framed)), size))


def _framed(words: Iterable[str]) -> Iterator[str]:
    own = (word for word in words if word not in FUNCTION_WORDS)
    things = tuple(dict.fromkeys(chain(own, EVERYDAY)))
    yield from ABOUT_PEOPLE
    for word, frame in product(things, ABOUT_THINGS):
        yield frame.format(word=word)
    for word, other, frame in product(things, things, ABOUT_TWO):
        yield frame.format(word=word, other=other)


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    seen = set[str]()
    for text in texts:
        if text not in seen:
            seen.add(text)
            yield text


def _commonest(things: Iterable[str], most: int | None) -> tuple[str, ...]:
    counted = Counter(filter(None, things))
    order = sorted(counted, key=lambda thing: (-counted[thing], thing))
    return tuple(order[:most])


def _ending(question: str) -> str:
    """Return the punctuation at the end of a question, with the space before it.

    >>> _ending("is there a cat ?"), _ending("is it?")
    (' ?', '?')
    """
    found = _ENDING.search(question)
    return found.group().rstrip() if found else ""
