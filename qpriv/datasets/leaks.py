"""Find images or patients that splits share; they invalidate test and membership figures."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, Protocol

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
        groups: Groups (images, or patients where known) of ``other`` of which ``one`` has the name
            or an image.
        of_groups: Groups of ``other``.
        triplets: Rows of ``other`` whose image, question and answer are all in ``one``.
        unit: What a group is: ``images``, or ``groups`` of several.
    """

    one: str
    other: str
    lang: str
    groups: int
    of_groups: int
    triplets: int
    unit: str = "images"

    def __str__(self) -> str:
        """Return one sentence."""
        language = "" if self.lang == "all" else f" (language {self.lang})"
        return (
            f"{self.groups} of {self.of_groups} {self.unit} of {self.other} are also in {self.one}"
            f"{language}; {self.triplets} rows are the same to the letter"
        )


class Grouped(Protocol):
    """A sample of any set."""

    @property
    def group_id(self) -> str:
        """Return what must not straddle two splits."""
        ...

    @property
    def image_id(self) -> str:
        """Return the image's name."""
        ...


def find_leaks(splits: Mapping[str, Sequence[Grouped]]) -> list[Leak]:
    """Return what every two splits share, over all languages and, of several, inside each.

    Where a validation split was carved out of the training split, ``train or val`` against
    ``test`` is the figure of the release.
    """
    languages = sorted({_lang(sample) for samples in splits.values() for sample in samples})
    scopes = [None, *(languages if len(languages) > 1 else [])]
    return [leak for lang in scopes for leak in _leaks_inside(splits, lang)]


def _lang(sample: Grouped) -> str:
    return sample.lang if isinstance(sample, VQASample) else ""


def _row(sample: Grouped) -> tuple[str, ...]:
    """Return what makes a row the same: the image, and what is asked and answered about it."""
    if isinstance(sample, VQASample):
        return sample.image_id, sample.question, sample.answer
    return (sample.image_id,)


def _leaks_inside(splits: Mapping[str, Sequence[Grouped]], lang: str | None) -> list[Leak]:
    inside = {
        name: [sample for sample in samples if lang is None or _lang(sample) == lang]
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
    ones: Iterable[Grouped],
    other: str,
    others: Sequence[Grouped],
    lang: str | None,
) -> Leak:
    groups, images, rows = set(), set(), set()
    for sample in ones:
        groups.add(sample.group_id)
        images.add(sample.image_id)
        rows.add(_row(sample))
    seen = {sample.group_id for sample in others}
    # a patient may be named in one split and not in the other
    shared = {x.group_id for x in others if x.group_id in groups or x.image_id in images}
    same = sum(_row(x) in rows for x in others)
    unit = "images" if len(seen) == len({x.image_id for x in others}) else "groups"
    return Leak(one, other, lang or "all", len(shared), len(seen), same, unit)


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
