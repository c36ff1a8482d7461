"""What fake documents say: kinds of fields, their labels, values and questions."""

import random
import string
from collections.abc import Callable
from dataclasses import dataclass

from faker import Faker

from .pii import PIIKind


@dataclass(frozen=True, slots=True)
class FieldKind:
    """A kind of field.

    Args:
        name: Name of the kind.
        pii: The kind of personal information it holds, or None.
        labels: Label on the page, and the noun a question uses for it.
        make: Draws a value.
    """

    name: str
    pii: PIIKind | None
    labels: tuple[tuple[str, str], ...]
    make: Callable[[Faker, random.Random], str]


def _person(fake: Faker, rng: random.Random) -> str:
    return f"{fake.first_name()} {fake.last_name()}"


def _place(fake: Faker, rng: random.Random) -> str:
    return str(fake.city())


def _time(fake: Faker, rng: random.Random) -> str:
    day, month, year = rng.randint(1, 28), rng.randint(1, 12), rng.randint(1950, 1999)
    return rng.choice((f"{month}/{day}/{year}", f"{day}.{month}.{year % 100:02d}"))


def _contact(fake: Faker, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return f"{rng.randint(200, 999)}-{rng.randint(0, 9999):04d}"
    letters = "".join(rng.choices(string.ascii_lowercase, k=3))
    return f"{letters}{rng.randint(10, 99)}@{fake.domain_word()[:4]}.org"


def _id(fake: Faker, rng: random.Random) -> str:
    letters = "".join(rng.choices(string.ascii_uppercase, k=2))
    return rng.choice((f"{letters}{rng.randint(0, 9999):04d}", f"{rng.randint(10**5, 10**6)}"))


def _url(fake: Faker, rng: random.Random) -> str:
    return f"www.{fake.domain_word()[:6]}{rng.randint(0, 99)}.com"


def _nrp(fake: Faker, rng: random.Random) -> str:
    return rng.choice(("Norwegian", "Kenyan", "Catholic", "Democrat", "Peruvian", "Buddhist"))


def _organisation(fake: Faker, rng: random.Random) -> str:
    names = ("Acme", "Globex", "Initech", "Umbra", "Hooli", "Vandel")
    return rng.choices(names, weights=(16, 8, 4, 2, 1, 1))[0]


def _page(fake: Faker, rng: random.Random) -> str:
    return rng.choices(("1 of 1", "1 of 2", "2 of 2", "1 of 3"), weights=(8, 3, 2, 1))[0]


FIELD_KINDS: dict[str, FieldKind] = {
    kind.name: kind
    for kind in (
        FieldKind(
            "person",
            PIIKind.PERSON,
            (("Name", "name"), ("From", "sender"), ("To", "recipient"), ("Sign", "signer")),
            _person,
        ),
        FieldKind("place", PIIKind.PLACE, (("City", "city"), ("Born in", "birthplace")), _place),
        FieldKind("time", PIIKind.TIME, (("Date", "date"), ("Due", "due date")), _time),
        FieldKind("contact", PIIKind.CONTACT, (("Tel", "phone"), ("Mail", "e-mail")), _contact),
        FieldKind(
            "id",
            PIIKind.ID,
            (("Ticket", "ticket number"), ("Badge", "badge number"), ("Acct", "account number")),
            _id,
        ),
        FieldKind("url", PIIKind.URL, (("Web", "website"),), _url),
        FieldKind("nrp", PIIKind.NRP, (("Group", "group"),), _nrp),
        FieldKind("organisation", None, (("Firm", "company"), ("Shop", "shop")), _organisation),
        FieldKind("page", None, (("Page", "page number"),), _page),
    )
}

DOCUMENT_KINDS: dict[str, tuple[str, ...]] = {
    "form": ("APPLICATION", "RECORD CARD", "Entry Form"),
    "ticket": ("TICKET", "PASS", "Admit One"),
    "invoice": ("INVOICE", "Receipt", "BILL"),
    "letter": ("MEMO", "Letter", "NOTE"),
}
"""Titles by kind of document."""

QUESTIONS: tuple[str, ...] = (
    "what is the {noun}{of} ?",
    "tell me the {noun}{of} .",
    "which {noun} is given{of} ?",
    "find the {noun}{of} .",
    "please read the {noun}{of} .",
    "what does it say as {noun}{of} ?",
    "can you see the {noun}{of} ?",
    "the {noun}{of} , please .",
)
"""Wordings of one question; ``{of}`` becomes empty or names another value of the page."""


def random_text(rng: random.Random) -> str:
    """Return a random string, which a reader must read because it cannot guess it."""
    alphabet = string.ascii_letters + string.digits + "-./@ "
    text = "".join(rng.choices(alphabet, k=rng.randint(4, 11)))
    return " ".join(text.split()) or "x"
