"""Questions that the image cannot answer: does the model hallucinate or refuse?

There are three kinds (source section on probes): a question about *another* image, a *nonsense*
question, and one with a *false premise* (it asks about a thing that is not in the image). An
answer that contains a phrase of the refusal set R is a refusal; any other non-empty answer is a
hallucination. The image's own question is the control, because a model that refuses everything
would otherwise look good.

The phrases are data (``irrelevant_questions.json``), in English and Chinese, and can be replaced.
A question about another image may happen to fit this one (*how many shapes are there?*), but the
data set never asks it about this image.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

import msgspec
import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from qpriv.datasets.encodings import text_of
from qpriv.datasets.sample import VQASample
from qpriv.declaration import Attack, Row, aside, prefixed
from qpriv.errors import DataError, reason
from qpriv.metrics.intervals import wilson_interval
from qpriv.metrics.sensitivity import (
    AREA_VISIBLE,
    FACES_TOUCHED,
    TOKENS_KEPT,
    TOKENS_TOUCHING,
    crossing_weights,
)
from qpriv.quantity import Quantity
from qpriv.result import Result

from .observation import batches
from .query import QueryAccess
from .threat import ThreatModel

Kind = Literal["own", "cross_image", "nonsense", "false_premise"]
KINDS: tuple[Kind, ...] = get_args(Kind)
THREAT = ThreatModel(attacker="outsider", auxiliary="questions", access="queries")

SUBSET = "privacy_subset_"
_ASKED: dict[Kind, str] = {
    "own": "Own question",
    "cross_image": "Another image's question",
    "nonsense": "Nonsense",
    "false_premise": "False premise",
}


def _rates(kind: Kind, title: str) -> tuple[Quantity, ...]:
    made_up = Quantity(
        name=f"{kind}_hallucination_rate",
        title=f"{title}: made up an answer",
        meaning="Share of answers that are neither empty nor a refusal.",
        direction="leak",
    )
    refused = Quantity(
        name=f"{kind}_refusal_rate",
        title=f"{title}: refused",
        meaning="Share of answers that hold a refusal.",
    )
    empty = Quantity(
        name=f"{kind}_empty_rate", title=f"{title}: empty", meaning="Share of empty answers."
    )
    return (refused, empty) if kind == "own" else (made_up, refused, empty)


ATTACKS = (
    Attack(
        name="irrelevant_questions",
        title="Irrelevant questions",
        quantities=(
            *(
                own
                for kind, title in _ASKED.items()
                for own in aside(
                    _rates(kind, title), f"{kind}_hallucination_rate", f"{kind}_refusal_rate"
                )
            ),
            *(
                Quantity(
                    name=f"{kind}_sensitive_tokens_kept",
                    title=f"{title}: sensitive tokens kept",
                    meaning="Share of the truly sensitive tokens that cross under that question.",
                    direction="leak",
                    question=TOKENS_KEPT.question,
                    by=title[0].lower() + title[1:],
                )
                for kind, title in _ASKED.items()
            ),
            *(
                replace(own, name=f"{kind}_{own.name}", title=f"{title}: {own.title.lower()}")
                for kind, title in _ASKED.items()
                for own in aside([TOKENS_TOUCHING, AREA_VISIBLE, FACES_TOUCHED])
            ),
            *(
                own
                for kind, title in _ASKED.items()
                for own in aside(prefixed(_rates(kind, title), SUBSET, "Privacy subset"))
            ),
        ),
        rows=(
            Row(
                what="irrelevant questions, `IrrelevantQuestionProbe`",
                who="outsider who asks; no",
                holds="questions",
                knows="through the policy",
                measures="hallucination, refusal and empty rates; sensitive tokens kept; again on "
                "the privacy subset",
                beside="the image's own question",
                source="the source's probes of what a model makes up",
            ),
        ),
    ),
)

_CHINESE = re.compile(r"[\u4e00-\u9fff]")


class Phrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The questions and refusals of one language.

    Args:
        refusals: The refusal set R.
        nonsense: Whole questions without a meaning.
        premises: Questions with ``{thing}`` in them.
        things: Things no picture of the data set is likely to show.
    """

    refusals: tuple[str, ...]
    nonsense: tuple[str, ...]
    premises: tuple[str, ...]
    things: tuple[str, ...]


Language = str
"""ISO 639-1 code."""


def load_phrases(path: Path | None = None) -> dict[Language, Phrases]:
    """Return the phrases of every language; None reads the shipped file.

    Raises:
        DataError: If the file is missing or invalid.
    """
    source = files("qpriv.attacks") / "irrelevant_questions.json" if path is None else path
    try:
        text = text_of(source.read_bytes(), str(source))
        phrases = msgspec.json.decode(text, type=dict[str, Phrases])
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise DataError(
            f"no phrases: {reason(error)}",
            where=str(source),
            remedy="give refusals, nonsense, premises and things for each language",
        ) from error
    empty = [name for name, own in phrases.items() if not all(msgspec.structs.astuple(own))]
    if empty or not phrases:
        raise DataError(
            f"a list of {empty or 'every language'} is empty", where=str(source), remedy="name some"
        )
    return phrases


class RefusalSet:
    """Finds phrases of R in an answer, as whole phrases.

    Case, punctuation, apostrophes and spaces are ignored. A phrase in an alphabetic script must
    match whole words of the answer. A Chinese phrase may match anywhere, because Chinese has no
    spaces.

    >>> refusals = RefusalSet(["can't tell", "unknown", "不知道"])
    >>> [refusals.found(text) for text in ("I CAN'T tell.", "unknowns", "我不知道。")]
    [True, False, True]
    """

    def __init__(self, phrases: Sequence[str]) -> None:
        plain = [_plain(phrase) for phrase in phrases]
        self._chinese = tuple(_close(phrase) for phrase in plain if _CHINESE.search(phrase))
        self._words = tuple(f" {phrase} " for phrase in plain if not _CHINESE.search(phrase))

    def found(self, answer: str) -> bool:
        """Return whether an answer contains a phrase of the set."""
        plain = _plain(answer)
        return any(phrase in f" {plain} " for phrase in self._words) or any(
            phrase in _close(plain) for phrase in self._chinese
        )


def irrelevant(
    kind: Kind,
    samples: Sequence[VQASample],
    phrases: Mapping[Language, Phrases],
    seed: int = 0,
) -> list[VQASample]:
    """Return the samples with another question each; their keys do not change.

    Args:
        kind: Kind of question; ``own`` changes nothing.
        samples: The samples; each question is in its sample's language.
        phrases: Phrases by language.
        seed: Seed of the random choices.

    Raises:
        DataError: If there are no phrases in a sample's language, or no other image provides a
            question.
    """
    if kind == "own":
        return list(samples)
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    said: dict[str, set[str]] = {}
    for sample in samples:
        said.setdefault(sample.group_id, set()).update((sample.question, *sample.answers))
    changed = []
    for sample in samples:
        about = said[sample.group_id]
        if kind == "cross_image":
            question = _of_another_image(sample, samples, about, rng)
        else:
            question = _made_up(kind, _of_language(sample.lang, phrases), about, rng)
        changed.append(replace(sample, question=question))
    return changed


@dataclass(frozen=True)
class Asked:
    """Answers to questions, and what crossed for them.

    Args:
        answers: The model's answers.
        kept: Patches that crossed as tokens, ``[n, N]`` bool.
        entering: Patches that crossed at all, including in merged tokens, ``[n, N]`` bool; None
            if the policy does not say.
        sensitivity: Highest patch sensitivity, ``[n]``; None if the policy scores none.
    """

    answers: tuple[str, ...]
    kept: Tensor
    entering: Tensor | None
    sensitivity: Tensor | None


@torch.no_grad()
def ask(access: QueryAccess, samples: Sequence[VQASample], max_new_tokens: int = 20) -> Asked:
    """Ask the model under the policy, and return its answers and the policy's decisions."""
    answers, kept, highest = list[str](), list[Tensor](), list[Tensor]()
    entering: list[Tensor] | None = []
    for part in batches(samples, access.batch_size):
        batch = access.model.preprocessor(part).to(access.model.device)
        features = access.encode(batch, access.policy.needs)
        decision = access.policy.decide(features, part)
        with access.asking():
            answers += access.model.answer(batch, features, decision, max_new_tokens)
        access.count += len(part)
        kept.append(decision.mask)
        if decision.merged is not None and decision.mixing is None:
            entering = None
        elif entering is not None:
            entering.append(crossing_weights(decision) > 0)
        if decision.sensitivity is not None:
            highest.append(decision.sensitivity.amax(dim=1).cpu())
    scored = len(highest) == len(kept) and len(kept) > 0
    return Asked(
        tuple(answers),
        torch.cat(kept),
        None if entering is None else torch.cat(entering),
        torch.cat(highest) if scored else None,
    )


def privacy_subset(sensitivity: Tensor, size: int) -> Tensor:
    """Return the rows with the highest maximum patch sensitivity, ascending; earlier rows win ties.

    Args:
        sensitivity: Highest patch sensitivity of each image, ``[n]``.
        size: Largest number of rows.

    >>> privacy_subset(torch.tensor([0.2, 0.9, 0.1, 0.9]), 2).tolist()
    [1, 3]
    """
    order = sensitivity.sort(descending=True, stable=True).indices
    return order[:size].sort().values


def answer_report(kind: Kind, answers: Sequence[str], refusals: RefusalSet) -> list[Result]:
    """Return rates with Wilson intervals; rows are independent, with one question per image.

    The names are ``<kind>_refusal_rate``, ``<kind>_empty_rate`` and, for questions that the image
    cannot answer, ``<kind>_hallucination_rate``. The three rates sum to one.

    Args:
        kind: Kind of question.
        answers: One answer per image.
        refusals: The refusal set.
    """
    empty = [not answer.strip() for answer in answers]
    refused = [refusals.found(answer) for answer in answers]
    counts = {"refusal_rate": sum(refused), "empty_rate": sum(empty)}
    if kind != "own":
        counts["hallucination_rate"] = len(answers) - sum(refused) - sum(empty)
    return [
        Result(
            name=f"{kind}_{name}",
            value=count / len(answers),
            n=len(answers),
            ci=wilson_interval(count, len(answers)),
        )
        for name, count in counts.items()
    ]


def _of_another_image(
    sample: VQASample, samples: Sequence[VQASample], about: set[str], rng: Generator
) -> str:
    """Return a question about another image that the data set never asks about this one."""
    others = sorted(
        {
            other.question
            for other in samples
            if other.group_id != sample.group_id
            and other.lang == sample.lang
            and other.question not in about
        }
    )
    if not others:
        raise DataError(
            "no other image is asked another question",
            where=sample.key,
            remedy="give more samples",
        )
    return _pick(others, rng)


def _made_up(kind: Kind, phrases: Phrases, about: set[str], rng: Generator) -> str:
    if kind == "nonsense":
        return _pick(phrases.nonsense, rng)
    words = {word for text in about for word in _plain(text).split()}
    text = " ".join(_plain(text) for text in about)
    absent = [
        thing
        for thing in phrases.things
        if not words & set(_plain(thing).split()) and _plain(thing) not in text
    ]
    if not absent:
        raise DataError("every thing is spoken of here", where=", ".join(sorted(about)))
    return _pick(phrases.premises, rng).replace("{thing}", _pick(absent, rng))


def _of_language(lang: str, phrases: Mapping[Language, Phrases]) -> Phrases:
    if lang not in phrases:
        raise DataError(
            f"no phrases in language {lang!r}",
            where=", ".join(phrases),
            remedy="name a file with that language",
        )
    return phrases[lang]


def _pick(options: Sequence[str], rng: Generator) -> str:
    return options[int(rng.integers(len(options)))]


def _plain(text: str) -> str:
    """Return words in lower case, without apostrophes, with one space where anything else was."""
    whole = unicodedata.normalize("NFKC", text).casefold()
    whole = re.sub(r"['\u2019\u02bc`]", "", whole)
    return " ".join(re.findall(r"\w+", whole))


def _close(text: str) -> str:
    return text.replace(" ", "")
