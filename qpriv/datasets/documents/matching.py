"""Find every place of an answer on a page."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from .page import PageText, Word

_MIN_PARTIAL = 4
"""Letters below which an answer inside a longer word is chance, as 17 is in 1917."""
_MIN_FUZZY = 10
"""Letters from which one misread letter still makes the same answer."""


def canonical(text: str) -> str:
    """Return the letters and digits of a text, whatever case, quotes and dashes it uses.

    >>> canonical("R. J. Reynolds"), canonical("R.J. REYNOLDS")
    ('rjreynolds', 'rjreynolds')
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(character for character in folded if character.isalnum())


@dataclass(frozen=True, slots=True)
class Match:
    """A place of an answer on a page.

    Args:
        words: The words it covers, as numbers in the page's order.
        partial: It begins or ends inside a word; the whole word is erased.
        fuzzy: One letter differs, as after a reading error.
    """

    words: tuple[int, ...]
    partial: bool = False
    fuzzy: bool = False


def locate(answers: Iterable[str], page: PageText) -> tuple[Match, ...]:
    """Return all places of any of the answers.

    Words are searched in the engine's reading order and column by column, so that answers are
    found across lines, with glued punctuation, split tokens and other spellings.

    Args:
        answers: Every accepted answer: the other spellings give it away as well.
        page: The words of the page.
    """
    letters = [canonical(word.text) for word in page.words]
    orders = (range(len(page.words)), column_order(page))
    found: dict[tuple[int, ...], Match] = {}
    for answer in answers:
        wanted = canonical(answer)
        if not wanted:
            continue
        for order in orders:
            matches = (*_exact(answer, wanted, letters, order), *_fuzzy(wanted, letters, order))
            for match in matches:
                found.setdefault(match.words, match)
    return tuple(found.values())


def _exact(
    answer: str, wanted: str, letters: Sequence[str], order: Sequence[int]
) -> Iterator[Match]:
    text = "".join(letters[index] for index in order)
    owners = [place for place, index in enumerate(order) for _ in letters[index]]
    start = text.find(wanted)
    while start >= 0:
        stop = start + len(wanted)
        first, last = owners[start], owners[stop - 1]
        inside = (start > 0 and owners[start - 1] == first) or (
            stop < len(text) and owners[stop] == last
        )
        covered = tuple(order[place] for place in range(first, last + 1) if letters[order[place]])
        # short answers must be words of their own: "1 7" is not 17
        long = len(wanted) >= _MIN_PARTIAL
        if long or (not inside and len(covered) == len(answer.split())):
            yield Match(tuple(sorted(covered)), partial=inside)
        start = text.find(wanted, start + 1)


def _fuzzy(wanted: str, letters: Sequence[str], order: Sequence[int]) -> Iterator[Match]:
    """Yield runs of whole words that differ from the answer by one letter."""
    if len(wanted) < _MIN_FUZZY:
        return
    for first in range(len(order)):
        run = ""
        for last in range(first, len(order)):
            run += letters[order[last]]
            if len(run) > len(wanted) + 1:
                break
            near = abs(len(run) - len(wanted)) <= 1 and run != wanted
            if near and Levenshtein.distance(run, wanted, score_cutoff=1) == 1:
                yield Match(tuple(sorted(order[first : last + 1])), fuzzy=True)


def column_order(page: PageText) -> list[int]:
    """Return the numbers of the words column by column.

    Engines read straight across two columns, so an answer that goes on in the next line of its
    column is torn apart in their order.
    """
    lines: dict[int, list[int]] = {}
    for number, word in enumerate(page.words):
        lines.setdefault(word.line, []).append(number)
    columns: list[tuple[list[float], list[list[int]]]] = []
    for line in sorted(lines.values(), key=lambda numbers: page.words[numbers[0]].box[1]):
        left, right = _extent([page.words[number] for number in line])
        for extent, members in columns:
            overlap = min(extent[1], right) - max(extent[0], left)
            if overlap > 0.5 * min(extent[1] - extent[0], right - left):
                extent[:] = [min(extent[0], left), max(extent[1], right)]
                members.append(line)
                break
        else:
            columns.append(([left, right], [line]))
    return [number for _, members in columns for line in members for number in line]


def _extent(words: Sequence[Word]) -> tuple[float, float]:
    boxes = [word.box for word in words]
    return min(box[0] for box in boxes), max(box[2] for box in boxes)
