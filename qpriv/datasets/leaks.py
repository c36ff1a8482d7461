"""Images (or patients) that splits share, which make test figures and membership figures wrong."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from qpriv.errors import DataError

from .sample import VQASample

OnLeak = Literal["warn", "error"]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Leak:
    """What two splits share.

    Args:
        one: Name of a split.
        other: Name of the split whose share is counted, the test split where it is one.
        lang: Language inside which was compared; ``all`` for the union of several.
        groups: Images or patients of ``other`` that are also in ``one``.
        of_groups: Images or patients of ``other``.
        triplets: Rows of ``other`` whose image, question and answer are all in ``one``.
    """

    one: str
    other: str
    lang: str
    groups: int
    of_groups: int
    triplets: int

    def __str__(self) -> str:
        """Return one sentence."""
        language = "" if self.lang == "all" else f" (language {self.lang})"
        return (
            f"{self.groups} of {self.of_groups} images of {self.other} are also in {self.one}"
            f"{language}; {self.triplets} rows are the same to the letter"
        )


def find_leaks(splits: Mapping[str, Sequence[VQASample]]) -> list[Leak]:
    """Return what every two splits share, over all languages and, of several, inside each.

    Where a validation split was carved out of the training split, ``train or val`` against
    ``test`` is the figure of the release.
    """
    languages = sorted({sample.lang for samples in splits.values() for sample in samples})
    scopes = [None, *(languages if len(languages) > 1 else [])]
    return [leak for lang in scopes for leak in _leaks_inside(splits, lang)]


def _leaks_inside(splits: Mapping[str, Sequence[VQASample]], lang: str | None) -> list[Leak]:
    inside = {
        name: [sample for sample in samples if lang is None or sample.lang == lang]
        for name, samples in splits.items()
    }
    leaks = [
        _leak(one, inside[one], other, inside[other], lang)
        for one, other in combinations(inside, 2)
    ]
    found = [leak for leak in leaks if leak.groups]
    if {leak.one for leak in found if leak.other == "test"} == {"train", "val"}:
        both = [*inside["train"], *inside["val"]]
        found.append(_leak("train or val", both, "test", inside["test"], lang))
    return found


def _leak(
    one: str,
    ones: Iterable[VQASample],
    other: str,
    others: Sequence[VQASample],
    lang: str | None,
) -> Leak:
    groups, rows = set(), set()
    for sample in ones:
        groups.add(sample.group_id)
        rows.add((sample.group_id, sample.question, sample.answer))
    seen = {sample.group_id for sample in others}
    same = sum((x.group_id, x.question, x.answer) in rows for x in others)
    return Leak(one, other, lang or "all", len(groups & seen), len(seen), same)


def report_leaks(leaks: Sequence[Leak], where: str, on_leak: OnLeak) -> None:
    """Log leaks, or raise.

    Raises:
        DataError: If there is a leak and ``on_leak`` is ``error``.
    """
    for leak in leaks:
        if on_leak == "error":
            raise DataError(
                str(leak), where=where, remedy="take other splits, or set `on_leak: warn`"
            )
        logger.warning("%s: %s", where, leak)
