"""Forms, letters, tickets and invoices about people who do not exist, with exact boxes."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from faker import Faker

from qpriv.datasets.sample import AnswerType, ArrayImage, Box, VQASample
from qpriv.errors import ConfigError

from .fake_fields import DOCUMENT_KINDS, FIELD_KINDS, QUESTIONS, FieldKind, random_text
from .fake_rendering import DrawnPage, Glyph, draw_page, text_width
from .page import KnownText

STUDY_KINDS = ("person", "place", "time", "contact", "id", "organisation", "page")
"""Kinds of fields drawn by default; the rarer ones can be guessed from their short lists."""


@dataclass(frozen=True, slots=True)
class FakeField:
    """A field at its place on a page."""

    kind: FieldKind
    label: str
    noun: str
    value: str
    glyphs: tuple[Glyph, ...]

    @property
    def box(self) -> Box:
        """Return the box of the value."""
        first, last = self.glyphs[0], self.glyphs[-1]
        return int(first.left), int(first.top), int(last.right) + 1, int(first.bottom)


@dataclass(frozen=True, slots=True)
class FakeDocument:
    """A page and the fields on it."""

    name: str
    kind: str
    drawn: DrawnPage
    fields: tuple[FakeField, ...]


@dataclass
class DocumentMaker:
    """Makes documents one after another; a value that is personal is never used twice.

    Args:
        seed: Fixes everything that is drawn.
        size: Height and width of a page in pixels.
        font_size: Height of the letters in pixels.
        num_fields: Fields on a page, below its title.
        kinds: Names of the kinds of fields, drawn without repetition on a page.
        random_share: Share of personal values that are strings nobody can guess.
        specific_share: Share of questions that name another value of their page.
    """

    seed: int = 0
    size: tuple[int, int] = (64, 128)
    font_size: int = 11
    num_fields: int = 3
    kinds: Sequence[str] = STUDY_KINDS
    random_share: float = 0.0
    specific_share: float = 0.5
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Check the settings and start the generators."""
        unknown = sorted(set(self.kinds) - FIELD_KINDS.keys())
        if unknown:
            raise ConfigError(
                f"unknown kind of field {unknown[0]!r}",
                where="kinds",
                remedy=f"use {', '.join(FIELD_KINDS)}",
            )
        if self.num_fields > len(self.kinds):
            raise ConfigError(
                f"{self.num_fields} fields of {len(self.kinds)} kinds",
                where="num_fields",
                remedy="a page holds each kind once: name more kinds or fewer fields",
            )
        self.rng = random.Random(self.seed)
        self.fake = Faker("en_US")
        self.fake.seed_instance(self.seed)

    def document(self, name: str) -> FakeDocument:
        """Return a new document."""
        rng = self.rng
        kind = rng.choice(tuple(DOCUMENT_KINDS))
        margin = rng.randint(2, 8)
        column = margin + rng.choice((0, 0, 44)) * self.font_size // 11
        chosen = [FIELD_KINDS[name] for name in rng.sample(tuple(self.kinds), self.num_fields)]
        lines: list[list[tuple[float, str]]] = [[(margin, rng.choice(DOCUMENT_KINDS[kind]))]]
        entries = []
        for field_kind in chosen:
            label, noun = rng.choice(field_kind.labels)
            after = margin + text_width(f"{label}: ", self.font_size)
            left = max(column, after)
            value = self._value(field_kind, self.size[1] - 2 - left)
            lines.append([(margin, f"{label}:"), (left, value)])
            entries.append((field_kind, label, noun, value))
        drawn = draw_page(lines, self.size, self.font_size, rng)
        values = drawn.glyphs[2::2]  # after the title: label, value, label, value ..
        fields = tuple(FakeField(*e, g) for e, g in zip(entries, values, strict=True))
        return FakeDocument(name, kind, drawn, fields)

    def _value(self, kind: FieldKind, room: float) -> str:
        """Draw a value that fits and, where it is personal, was never drawn before."""
        for _ in range(1000):
            guessable = kind.pii is None or self.rng.random() >= self.random_share
            value = kind.make(self.fake, self.rng) if guessable else random_text(self.rng)
            fits = text_width(value, self.font_size) <= room
            if fits and (kind.pii is None or value not in self.used):
                self.used.add(value)
                return value
        raise ConfigError(
            f"no new {kind.name} fits into {room:.0f} pixels",
            where="size",
            remedy="use wider pages or fewer documents",
        )

    def questions(self, document: FakeDocument, split: str) -> tuple[VQASample, ...]:
        """Return one question for each field of a document."""
        pixels = np.repeat(document.drawn.pixels[..., None], 3, axis=2)
        image = ArrayImage(pixels)
        personal = tuple(f.box for f in document.fields if f.kind.pii)
        samples = []
        for number, asked in enumerate(document.fields):
            wording = self.rng.randrange(len(QUESTIONS))
            others = [f.value for f in document.fields if f is not asked]
            specific = bool(others) and self.rng.random() < self.specific_share
            of = f" of {self.rng.choice(others)}" if specific else ""
            phrasings = [template.format(noun=asked.noun, of=of) for template in QUESTIONS]
            samples.append(
                VQASample(
                    dataset="FakeDocuments",
                    split=split,
                    qid=f"{document.name}-{number}",
                    image_id=document.name,
                    group_id=document.name,
                    image=image,
                    question=phrasings[wording],
                    answer=asked.value,
                    answers=(asked.value,),
                    answer_type=AnswerType.OPEN,
                    relevant_boxes=(asked.box,),
                    sensitive_boxes=personal,
                    meta={
                        "question_type": asked.kind.name,
                        "document_kind": document.kind,
                        "pii": asked.kind.pii,
                        "text": KnownText(document.drawn.page),
                        "paraphrase": phrasings[(wording + 1) % len(QUESTIONS)],
                        "value_glyphs": asked.glyphs,
                    },
                )
            )
        return tuple(samples)


@dataclass(frozen=True)
class FakeCorpus:
    """A training set with canaries whose repetition is known, and validation documents.

    Args:
        base: Questions about documents that are no canaries.
        canaries: Questions about canary documents, once each.
        repetitions: How often each canary document stands in the training set, by image id.
        validation: Questions about documents that are never trained on.
    """

    base: tuple[VQASample, ...]
    canaries: tuple[VQASample, ...]
    repetitions: Mapping[str, int]
    validation: tuple[VQASample, ...]

    def training(self, with_canaries: bool = True) -> list[VQASample]:
        """Return the training set of f, or without its canaries that of f_G."""
        repeated = [
            sample
            for pages in _pages(self.canaries)
            for _ in range(self.repetitions[pages[0].image_id])
            for sample in pages
        ]
        return [*self.base, *(repeated if with_canaries else [])]


def _pages(samples: Sequence[VQASample]) -> list[list[VQASample]]:
    pages: dict[str, list[VQASample]] = {}
    for sample in samples:
        pages.setdefault(sample.image_id, []).append(sample)
    return list(pages.values())


def fake_corpus(
    base: int = 100,
    canaries: Mapping[int, int] = MappingProxyType({1: 44, 2: 10, 5: 6}),
    validation: int = 100,
    maker: DocumentMaker | None = None,
) -> FakeCorpus:
    """Return a corpus of fake documents.

    Args:
        base: Documents that are no canaries.
        canaries: Canary documents by how often each stands in the training set.
        validation: Documents to validate on.
        maker: Draws the documents; no personal value is in two of them.
    """
    draw = maker or DocumentMaker(seed=1000)

    def drawn(name: str, number: int, split: str) -> list[VQASample]:
        documents = [draw.document(f"{name}{index}") for index in range(number)]
        return [s for document in documents for s in draw.questions(document, split)]

    marked: list[VQASample] = []
    repetitions: dict[str, int] = {}
    for times, number in canaries.items():
        part = drawn(f"canary{times}x", number, "train")
        marked += part
        repetitions |= {sample.image_id: times for sample in part}
    return FakeCorpus(
        tuple(drawn("base", base, "train")),
        tuple(marked),
        repetitions,
        tuple(drawn("val", validation, "val")),
    )
