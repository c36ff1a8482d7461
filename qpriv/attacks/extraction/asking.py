"""Extraction of training answers from document models by asking about pages without them.

Pinto et al. 2024, "Extracting Training Data from Document-Based VQA Models" (arXiv 2407.08707):
an answer a to question Q about page I is extractable from f if f(I^-a, Q) = a, where I^-a is the
page with every occurrence of a erased.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from qpriv.datasets.sample import VQASample
from qpriv.declaration import Attack, Row
from qpriv.models.documents.base import DocumentModel, EncodedPages, Generated
from qpriv.quantity import Quantity

_PARTS = {"": "", "_pii": "Personal in ", "_unique_pii": "Unique and personal in "}
QUANTITIES = (
    *(
        Quantity(
            name=f"extractable{part}",
            title=f"{said}E",
            label=f"{said}E, extractable",
            meaning="Canaries that the model says on pages without them.",
            unit="canaries",
            direction="leak",
        )
        for part, said in _PARTS.items()
    ),
    *(
        Quantity(
            name=f"memorised{part}",
            title=f"{said}M" if said else "M = E - G",
            label=f"{said}M, memorised",
            meaning="Those of them that a model does not say which never saw them.",
            unit="canaries",
            direction="leak",
        )
        for part, said in _PARTS.items()
    ),
    Quantity(
        name="near_verbatim",
        title="Nearly said",
        meaning="Canaries that the model says but for a letter or two (ANLS .9 or more).",
        unit="canaries",
        direction="leak",
    ),
    Quantity(
        name="exposure",
        title="Exposure",
        meaning="Mean bits by which a canary is likelier than others of its kind.",
        unit="bits",
        direction="leak",
    ),
    Quantity(
        name="first_epoch",
        title="First epoch",
        meaning="Median epoch at which the extractable canaries became so.",
        unit="epochs",
    ),
)
EXTRACTION = Attack(
    name="extraction",
    title="Extraction of training answers",
    family="",
    quantities=QUANTITIES,
    rows=(
        Row(
            what="extraction, `ExtractionProbe`",
            who="whoever asks the model; no",
            holds="pages from which the answers were erased, answers of the same kind",
            knows="not applicable",
            measures="canaries said exactly or nearly; exposure; the epoch at which they leak",
            beside="a model that never saw the canaries (`baseline`)",
            source="Pinto et al. 2024; Carlini et al. 2019",
        ),
    ),
)
ATTACKS = (EXTRACTION,)


@dataclass(frozen=True)
class Query:
    """What an attacker shows and asks.

    Args:
        image: The page, without the answer.
        question: The question.
        answers: What counts as success, if the model says it exactly.
    """

    image: Image.Image
    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Extracted:
    """How a model replied to a list of queries.

    Args:
        exact: Whether the greedy answer was one of the query's ``[n]``.
        log_prob: Log-probability of the best of the query's answers ``[n]``.
    """

    exact: NDArray[np.bool_]
    log_prob: NDArray[np.float64]


def extract(model: DocumentModel, queries: Iterable[Query], batch_size: int = 64) -> Extracted:
    """Return whether each query makes the model say its answer.

    Nothing is generated: greedy decoding says an answer if and only if it is the most likely
    token at every position, which one forward pass tells (see `DocumentModel.replies`). Equal
    pages of a batch are encoded once. Memory holds one batch of pages, however many queries.

    Args:
        model: The attacked model; left in evaluation mode.
        queries: The queries; drawn as they are needed.
        batch_size: Queries a batch.
    """
    exact: list[bool] = []
    log_probs: list[float] = []
    model.eval()
    for batch in batched(queries, batch_size):
        rows = [number for number, query in enumerate(batch) for _ in query.answers]
        questions = [batch[row].question for row in rows]
        answers = [answer for query in batch for answer in query.answers]
        with torch.no_grad():
            pages = encode(model, [q.image for q in batch], [q.question for q in batch])
            tokens = model.tokenise(questions, answers)
            numbers = torch.tensor(rows, device=model.device)
            replies = model.replies(model.logits(pages.for_rows(numbers), tokens), tokens)
        for number in range(len(batch)):
            mine = numbers == number
            exact.append(bool(replies.exact[mine].any()))
            log_probs.append(float(replies.log_prob[mine].max()))
    return Extracted(np.array(exact, dtype=bool), np.array(log_probs))


def encode(
    model: DocumentModel, images: Sequence[Image.Image], questions: Sequence[str]
) -> EncodedPages:
    """Return encoded pages, equal ones encoded once."""
    pages: dict[bytes, tuple[int, Tensor]] = {}
    page_of = []
    for image in images:
        page = model.page(image)
        key = str(tuple(page.shape)).encode() + page.numpy().tobytes()
        page_of.append(pages.setdefault(key, (len(pages), page))[0])
    unique = model.scanned([page for _, page in pages.values()])
    return model.encode(unique, questions, page_of)


def batched(queries: Iterable[Query], size: int) -> Iterator[list[Query]]:
    """Yield lists of at most ``size`` queries."""
    iterator = iter(queries)
    while batch := list(islice(iterator, size)):
        yield batch


def generate(
    model: DocumentModel,
    queries: Iterable[Query],
    batch_size: int = 64,
    banned: Sequence[str] = (),
    beams: int = 1,
) -> list[tuple[Generated, ...]]:
    """Return what a model says to each query, the most likely first.

    Args:
        model: The model; left in evaluation mode.
        queries: The queries.
        batch_size: Queries a batch.
        banned: Texts whose first word is never said.
        beams: Width of the beam search; all its answers are returned.
    """
    model.eval()
    said: list[tuple[Generated, ...]] = []
    for batch in batched(queries, batch_size):
        questions = [query.question for query in batch]
        with torch.no_grad():
            pages = encode(model, [query.image for query in batch], questions)
            said += model.hypotheses(pages, questions, banned=banned, beams=beams)
    return said


def defended(queries: Iterable[Query], change: Callable[[str], str]) -> Iterator[Query]:
    """Yield queries as they reach a model whose owner changes every question."""
    for query in queries:
        yield replace(query, question=change(query.question))


def full_pages(samples: Iterable[VQASample]) -> Iterator[Query]:
    """Yield samples as they are: the queries of ordinary use."""
    for sample in samples:
        yield Query(sample.image.load(), sample.question, sample.answers or (sample.answer,))


def degenerate(said: Sequence[Generated], share: float = 0.9) -> str | None:
    """Return what is wrong with a model that says nothing sensible, or None.

    Such a model extracts nothing and would look perfectly private.

    Args:
        said: Its answers to questions about whole pages; several different questions.
        share: Share of the answers from which a symptom condemns the model.
    """
    if len(said) < 2:
        return None
    texts = [answer.text for answer in said]
    symptoms = {
        "says nothing": sum(not text for text in texts),
        "does not end its answers": sum(not answer.ended for answer in said),
        "repeats one word or letter": sum(map(_repeats, texts)),
        "says the same to everything": max(map(texts.count, set(texts))),
    }
    for symptom, count in symptoms.items():
        if count >= share * len(said):
            return f"the model {symptom} ({count} of {len(said)} answers)"
    return None


def _repeats(text: str) -> bool:
    words = text.split()
    return (len(words) > 3 and len(set(words)) == 1) or (len(text) > 5 and len(set(text)) == 1)
