"""``qpriv prepare canaries``: judge training answers one by one, into files that can be reviewed.

The folder holds ``canaries.jsonl`` (every judged answer, rejected ones with their reason),
``review.html`` (a picture of each kept one before and after) and ``review.csv`` (where a person
corrects kinds and rejects). A killed run goes on where it stopped.
"""

import codecs
import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from qpriv.datasets.files import open_regular
from qpriv.datasets.sample import VQASample
from qpriv.datasets.tables import read_table
from qpriv.errors import DataError
from qpriv.io import appending

from .canaries import Canary, Curation, Reason, judge
from .matching import canonical
from .ocr import OCREngine
from .page import PageText
from .pii import PIIKind, PIILabel
from .training_counts import TrainingCounts

FILE = "canaries.jsonl"
REVIEW = "review.csv"


@dataclass(frozen=True)
class Preparation:
    """How a preparation ended.

    Args:
        canaries: Those that were kept, in the order they were drawn.
        rejected: Number of the others, by reason.
    """

    canaries: tuple[Canary, ...]
    rejected: Counter[Reason]

    def __str__(self) -> str:
        """Return counts as a few lines of text."""
        total = len(self.canaries) + self.rejected.total()
        kinds = Counter(canary.pii or "none" for canary in self.canaries)
        unique = sum(canary.unique and canary.pii is not None for canary in self.canaries)
        lines = [f"{len(self.canaries)} canaries of {total} answers, {unique} unique and personal"]
        lines += [f"  kept {number}: {kind}" for kind, number in kinds.most_common()]
        lines += [f"  rejected {n}: {reason}" for reason, n in self.rejected.most_common()]
        return "\n".join(lines)


def draw(training: Sequence[VQASample], number: int | None, seed: int) -> list[VQASample]:
    """Return a random choice of samples, all of them where ``number`` is None."""
    if number is None or number >= len(training):
        return list(training)
    chosen = np.random.default_rng(seed).choice(len(training), number, replace=False)
    return [training[index] for index in sorted(chosen.tolist())]


def prepare_canaries(
    training: Sequence[VQASample],
    folder: Path,
    settings: Curation | None = None,
    number: int | None = None,
    seed: int = 0,
    engine: OCREngine | None = None,
    overrides: dict[str, PIILabel] | None = None,
    candidates: Sequence[VQASample] | None = None,
) -> Preparation:
    """Judge answers of a training set, appending each to ``folder/canaries.jsonl``.

    Pages and erased pages are not stored: boxes and hashes are, and a canary erases its page anew
    in a millisecond. Memory does not grow with the number of pages.

    Args:
        training: The whole training set.
        folder: Where the files go; answers already judged there are not judged again.
        settings: Settings of the choice.
        number: Answers drawn at random; None judges all.
        seed: Seed of the draw.
        engine: Reads pages that come without words.
        overrides: A person's decisions on kinds, by sample key.
        candidates: The samples whose answers are judged; all of the training set where None.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    drawn = draw(training if candidates is None else candidates, number, seed)
    done = {canary.key for canary in read_judged(path)} if path.exists() else set()
    open_samples = [sample for sample in drawn if sample.key not in done]
    if open_samples:
        counts = TrainingCounts.of(training)
        counts.count_pages(_known_pages(training), {canonical(s.answer) for s in open_samples})
        with appending(path) as file:
            for sample in open_samples:
                label = (overrides or {}).get(sample.key)
                canary = judge(sample, counts, settings or Curation(), engine, label)
                file.write(msgspec.json.encode(canary) + b"\n")
                file.flush()
    keys = {sample.key for sample in drawn}
    return summary(canary for canary in read_judged(path) if canary.key in keys)


def _known_pages(training: Iterable[VQASample]) -> Iterator[PageText]:
    """Yield the words of each page of a training set once, where the release has them."""
    seen: set[str] = set()
    for sample in training:
        if sample.image_id not in seen and sample.meta.get("text") is not None:
            seen.add(sample.image_id)
            yield sample.meta["text"].load()


def read_judged(path: Path) -> list[Canary]:
    """Return every judged answer of a file; a half-written last line does not count.

    Raises:
        DataError: If the file is missing or a whole line is broken.
    """
    if not path.exists():
        raise DataError("no canaries here", where=str(path), remedy="run `qpriv prepare canaries`")
    with open_regular(path) as file:
        content = file.read().removeprefix(codecs.BOM_UTF8)
    whole = content[: content.rfind(b"\n") + 1]
    decoder = msgspec.json.Decoder(Canary)
    judged = []
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            judged.append(decoder.decode(line))
        except (msgspec.DecodeError, RecursionError) as error:
            raise DataError(
                f"no canary: {error}",
                where=f"{path}, line {number}",
                remedy="remove the line; `qpriv prepare canaries` judges its answer again",
            ) from error
    return judged


def summary(judged: Iterable[Canary]) -> Preparation:
    """Return the kept canaries and the counts of the others."""
    kept, rejected = [], Counter[Reason]()
    for canary in judged:
        if canary.reason:
            rejected[canary.reason] += 1
        else:
            kept.append(canary)
    return Preparation(tuple(kept), rejected)


def load_canaries(folder: Path) -> tuple[Canary, ...]:
    """Return the canaries of a folder after a person's review, where there was one.

    Raises:
        DataError: If there are none, or the review names a kind that does not exist.
    """
    review = _read_review(folder / REVIEW) if (folder / REVIEW).exists() else {}
    judged = (_reviewed(canary, review) for canary in read_judged(folder / FILE))
    kept = summary(judged).canaries
    if not kept:
        raise DataError("every answer was rejected", where=str(folder), remedy="see its review")
    return kept


def _reviewed(canary: Canary, review: dict[str, tuple[bool, PIIKind | None]]) -> Canary:
    if canary.key not in review or canary.reason:
        return canary
    keep, kind = review[canary.key]
    if not keep:
        return replace(canary, reason=Reason.PERSON)
    return canary if kind == canary.pii else replace(canary, pii=kind, rule="a person")


def write_review_table(canaries: Sequence[Canary], folder: Path) -> Path:
    """Write the table in which a person says ``no`` under ``keep``, or another kind.

    A table that is there is left alone: it may hold somebody's work.
    """
    path = folder / REVIEW
    if path.exists():
        return path
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("key", "keep", "pii", "rule", "question", "answer"))
        for canary in canaries:
            kind = canary.pii or ""
            row = (canary.key, "yes", kind, canary.rule, canary.question, canary.answer)
            writer.writerow(row)
    return path


def _read_review(path: Path) -> dict[str, tuple[bool, PIIKind | None]]:
    review: dict[str, tuple[bool, PIIKind | None]] = {}
    for line, row in read_table(path, ("key", "keep", "pii")):
        kind, keep = row["pii"].strip().lower(), row["keep"].strip().lower() or "yes"
        if (kind and kind not in set(PIIKind)) or keep not in {"yes", "no"}:
            raise DataError(
                f"keep is {keep!r}, kind is {kind!r}",
                where=f"{path}, line {line}",
                remedy=f"keep is yes or no; a kind is empty or one of {', '.join(PIIKind)}",
            )
        review[row["key"]] = (keep == "yes", PIIKind(kind) if kind else None)
    return review
