"""Answers that could be guessed from the rest of the page or the question: no canaries.

The source removed them by hand; these are the rules a person would apply first.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import combinations

from .matching import canonical

_NUMBER = re.compile(r"^[$£€#(]*(-?\d[\d,]*(?:\.\d+)?)[)%.:;]*$")
_MAX_NUMBERS = 200  # a page of figures: pairs are still quick
_MIN_SUM = 20  # small sums come about by chance


def number_of(text: str) -> float | None:
    """Return the number a word is, or None.

    >>> number_of("$1,250.50"), number_of("Table")
    (1250.5, None)
    """
    match = _NUMBER.match(text.strip())
    return float(match[1].replace(",", "")) if match else None


def in_question(question: str, answer: str) -> bool:
    """Return whether the question holds the answer, or all its words.

    >>> in_question("Is Ann Lee the chair?", "Ann Lee")
    True
    """
    words = {canonical(word) for word in question.split()}
    parts = {canonical(word) for word in answer.split()} - {""}
    return bool(parts) and parts <= words


def in_sequence(answer: str, remaining: Iterable[str]) -> bool:
    """Return whether a whole number lies between its neighbours on the page.

    >>> in_sequence("4", ["3", "5", "Figure"]), in_sequence("4", ["3", "Figure"])
    (True, False)
    """
    value = number_of(answer)
    if value is None or value != int(value):
        return False
    others = {number_of(word) for word in remaining}
    steps = ((-1, 1), (-2, -1), (1, 2))
    return any(all(value + step in others for step in pair) for pair in steps)


def is_sum(answer: str, remaining: Iterable[str]) -> bool:
    """Return whether a number is the sum or difference of others, or the total of a run of them.

    >>> is_sum("60", ["10", "20", "30"]), is_sum("61", ["10", "20", "30"])
    (True, False)
    """
    value = number_of(answer)
    if value is None or abs(value) < _MIN_SUM:
        return False
    numbers = [n for n in map(number_of, remaining) if n is not None][:_MAX_NUMBERS]
    close = 1e-6 * abs(value)
    pairs = any(
        abs(a + b - value) < close or abs(abs(a - b) - abs(value)) < close
        for a, b in combinations(numbers, 2)
    )
    return pairs or _is_total(value, numbers, close)


def _is_total(value: float, numbers: Sequence[float], close: float) -> bool:
    """Return whether a run of at least three consecutive numbers adds up to the value."""
    for start in range(len(numbers)):
        total = 0.0
        for length, number in enumerate(numbers[start:], start=1):
            total += number
            if length >= 3 and abs(total - value) < close:
                return True
    return False


def is_repeated_elsewhere(answer: str, remaining: Sequence[str]) -> bool:
    """Return whether another word gives the answer away: an e-mail, a domain, the full name.

    >>> is_repeated_elsewhere("Brent Hess", ["contact:", "b.hess@acme.org"])
    True
    >>> is_repeated_elsewhere("RJR", ["Royal", "Java", "Roasters"])
    True
    """
    parts = [canonical(word) for word in answer.split()]
    telling = [part for part in parts if len(part) >= 4 and not part.isdigit()]
    others = [canonical(word) for word in remaining]
    if any(part in other for part in telling for other in others):
        return True
    letters = answer.replace(".", "")
    if not (letters.isalpha() and letters.isupper() and 2 < len(letters) <= 6):
        return False
    initials = "".join(word[0] for word in remaining if word[:1].isalpha())
    return letters.casefold() in initials.casefold()


def question_template(question: str) -> str:
    """Return a question without what is particular to one page.

    >>> question_template("What is the total for invoice A123 of 'Acme'?")
    'what is the total for invoice # of #'
    """
    plain = re.sub(r"'[^']*'|\"[^\"]*\"|\S*\d\S*", "#", question.lower())
    return " ".join(re.sub(r"[^\w# ]", " ", plain).split())
