"""Classify answers as personal by readable rules; a CSV of corrections overrides them."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from faker.providers.address.en_US import Provider as Addresses
from faker.providers.person.en_US import Provider as People

from qpriv.datasets.tables import read_table
from qpriv.errors import DataError


class PIIKind(StrEnum):
    """The seven kinds of the study (Pinto et al. 2024, arXiv 2407.08707, section 4)."""

    PLACE = "place"
    PERSON = "person"
    TIME = "time"
    CONTACT = "contact"
    NRP = "nrp"
    URL = "url"
    ID = "id"


UNIQUELY_IDENTIFYING = frozenset({PIIKind.CONTACT, PIIKind.ID})
"""Kinds that point at one person or thing."""


@dataclass(frozen=True, slots=True)
class PIILabel:
    """A kind of personal information, or none, and the rule that said so."""

    kind: PIIKind | None
    rule: str


_MONTHS = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
_PATTERNS: tuple[tuple[PIIKind, str, re.Pattern[str]], ...] = (
    (PIIKind.CONTACT, "e-mail", re.compile(r"\S+@\S+\.\w+")),
    (PIIKind.URL, "url", re.compile(r"(?:https?://|www\.)\S+|^[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|edu|gov)(?:/\S*)?$")),
    (PIIKind.TIME, "date", re.compile(rf"^(?:\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}|(?:\d{{1,2}}(?:st|nd|rd|th)?\s*)?(?:{_MONTHS})\b[\s.,\d]*(?:st|nd|rd|th)?[\s.,\d]*)$", re.IGNORECASE)),
    (PIIKind.TIME, "clock", re.compile(r"^\d{1,2}[:.]\d{2}\s*(?:[ap]\.?m\.?)?$", re.IGNORECASE)),
    (PIIKind.CONTACT, "phone", re.compile(r"^\+?(?:\(?\d{3}\)?[\s./-]*)?\d{3}[\s.-]\d{4}(?:\s*x\d+)?$")),
    (PIIKind.PLACE, "street address", re.compile(r"^\d+\s+\w.*\b(?:street|st|avenue|ave|road|rd|drive|dr|lane|blvd|boulevard)\b", re.IGNORECASE)),
)  # fmt: skip
_CUES: tuple[tuple[PIIKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(rf"\b(?:{words})\b"))
    for kind, words in (
        (PIIKind.CONTACT, r"phone|telephone|fax|tel|e-?mail|extension"),
        (PIIKind.URL, r"website|web ?site|url|web address"),
        (PIIKind.ID, r"ticket|serial|invoice (?:no|number)|badge|account|id|license|licence|passport|(?:case|claim|order|policy|card|employee) (?:no|number)"),
        (PIIKind.NRP, r"nationality|religion|religious|political|party|citizenship|ethnic\w*"),
        (PIIKind.TIME, r"when|date|year|what time|month|deadline"),
        (PIIKind.PERSON, r"who|whom|whose|name of the (?:person|author|director|doctor|president|chairman|contact)|signed|signer|sender|recipient|author"),
        (PIIKind.PLACE, r"where|city|town|address|state|country|county|location|birthplace|venue"),
    )
)  # fmt: skip
_NRP = frozenset(
    "american british canadian chinese dutch english french german indian irish italian japanese "
    "kenyan mexican norwegian peruvian polish russian spanish swedish turkish catholic protestant "
    "buddhist hindu jewish muslim lutheran methodist democrat republican socialist".split()
)


@cache
def _names() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return common first names, last names, and states and countries, in lower case."""
    first = frozenset(name.lower() for name in People.first_names)
    last = frozenset(name.lower() for name in People.last_names)
    states = frozenset(name.lower() for name in (*Addresses.states, *Addresses.countries))
    return first, last, states


def classify(question: str, answer: str) -> PIILabel:
    """Return the kind of an answer: by its form, then by what was asked, then by lists of names.

    A bare number is an ID or a phone number only where the question says so, and one that
    answers "how many" is nothing personal.

    >>> classify("What is the fax number?", "212 880 1234").kind
    <PIIKind.CONTACT: 'contact'>
    >>> classify("How many units were sold?", "1,250")
    PIILabel(kind=None, rule='question: amount')
    """
    text, asked = answer.strip(), question.lower()
    for kind, rule, pattern in _PATTERNS:
        if pattern.search(text):
            return PIILabel(kind, f"form: {rule}")
    if re.match(r"\W*how (?:many|much)\b|.*\bpercent", asked) or text.lower() in {"yes", "no"}:
        return PIILabel(None, "question: amount")
    for kind, cue in _CUES:
        match = cue.search(asked)
        if match and _plausible(kind, text):
            return PIILabel(kind, f"question: {match[0]}")
    return _by_names(text)


def _plausible(kind: PIIKind, text: str) -> bool:
    """Return whether an answer can be what the question's cue suggests."""
    has_digit = any(character.isdigit() for character in text)
    if kind in {PIIKind.CONTACT, PIIKind.ID}:
        return has_digit
    if kind == PIIKind.PERSON:
        return not has_digit and text[:1].isupper()
    return kind != PIIKind.TIME or has_digit or bool(re.search(_MONTHS, text.lower()))


def _by_names(text: str) -> PIILabel:
    first, last, states = _names()
    words = [word.strip(".,").lower() for word in text.split()]
    if text.lower() in states:
        return PIILabel(PIIKind.PLACE, "list: states and countries")
    if len(words) == 1 and words[0] in _NRP:
        return PIILabel(PIIKind.NRP, "list: nationality, religion, politics")
    if 2 <= len(words) <= 4 and words[0] in first and words[-1] in last:
        return PIILabel(PIIKind.PERSON, "list: names")
    return PIILabel(None, "no rule")


def read_overrides(path: Path) -> dict[str, PIILabel]:
    """Return what a person decided: a CSV with columns ``key`` and ``pii`` (empty for none).

    Raises:
        DataError: If a column is missing or a kind unknown; names the line.
    """
    labels = {}
    for line, row in read_table(path, ("key", "pii")):
        kind = row["pii"].strip().lower()
        if kind and kind not in set(PIIKind):
            kinds = ", ".join(PIIKind)
            raise DataError(
                f"unknown kind {kind!r}", where=f"{path}, line {line}", remedy=f"use {kinds}"
            )
        labels[row["key"]] = PIILabel(PIIKind(kind) if kind else None, "a person")
    return labels
