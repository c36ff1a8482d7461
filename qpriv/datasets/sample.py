"""`VQASample`: one question about one image, whatever release it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from qpriv.errors import DataError

from .files import open_regular
from .images import decode_image, looks_whole

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels of the stored image; right and bottom are exclusive."""


class AnswerType(StrEnum):
    """Whether the answer is one of a few (yes/no, A/B) or free text."""

    OPEN = "OPEN"
    CLOSED = "CLOSED"


AnswerRule = Literal[
    "exact", "medical", "llava_med", "gqa", "gqa_strict",
    "official", "official_2016", "always", "okvqa",
]  # fmt: skip
"""How an answer is judged; the name stands in every metric key.

``official`` and the next three are the modes of `qpriv.metrics.functional.vqa_accuracy`; ``medical`` is exact match on
closed and word recall on open questions, by the Chinese rule where the question is Chinese;
``llava_med`` is LLaVA-Med's own rule for both; ``exact`` is exact match. ``exact`` and ``medical``
compare answers of which normalisation leaves nothing, such as ``A``, as they are written.
"""


class ImageSource(Protocol):
    """Where an image's pixels come from; nothing is read before `load`."""

    def load(self) -> Image.Image:
        """Return the image in mode RGB.

        Raises:
            DataError: If the image is missing or broken; names the file.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileImage:
    """An image file on disk."""

    path: Path

    def load(self) -> Image.Image:
        """Return the image in mode RGB, upright; see `decode_image`.

        Raises:
            DataError: If the file is missing or not an image.
        """
        with open_regular(self.path) as file:
            return decode_image(file, str(self.path))

    def check(self) -> None:
        """Check the header and the end of the file; decode it only if they look wrong.

        Raises:
            DataError: If the file is missing or cannot be decoded.
        """
        with open_regular(self.path) as file:
            if not looks_whole(file):
                file.seek(0)
                decode_image(file, str(self.path))


@dataclass(frozen=True, slots=True, eq=False)
class ArrayImage:
    """An image already in memory, uint8 ``[H, W, 3]``."""

    array: NDArray[np.uint8]

    def load(self) -> Image.Image:
        """Return the image in mode RGB."""
        return Image.fromarray(self.array)


@dataclass(frozen=True, slots=True)
class MissingImage:
    """An image that a record names and that is not there.

    Args:
        name: The name in the record.
        where: The record, and where was looked.
        instead: What was found in its place, such as the file whose name is nearest, or "".
    """

    name: str
    where: str
    instead: str = ""

    def __str__(self) -> str:
        """Return the name, and what was found in its place."""
        return f"{self.name} ({self.instead})" if self.instead else self.name

    def load(self) -> Image.Image:
        """Raise: there is nothing to load.

        Raises:
            DataError: Always.
        """
        raise DataError(
            f"image {self.name!r} is missing{f', {self.instead}' if self.instead else ''}",
            where=self.where,
            remedy="unpack the rest of the release, or set `missing_images: drop`",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VQASample:
    """One question about one image.

    Args:
        dataset: Name of the data set class.
        split: ``train``, ``val``, ``test`` or the release's own name.
        qid: Question id as in the release, as a string; unique in data set and split.
        image_id: Image id as in the release, as a string.
        group_id: What must never straddle two splits: the image, or the patient where known.
        image: Where the pixels come from.
        question: The question, as in the release.
        answer: The gold answer that is trained on.
        answers: Every gold answer, for scores that use several (ten in VQAv2).
        answer_type: OPEN or CLOSED.
        lang: ISO 639-1 code of the question.
        relevant_boxes: Boxes of what the question is about; None where unknown.
        sensitive_boxes: Boxes of what must not leak; None where unknown, empty where nothing is.
        meta: Further fields of the release, such as ``question_type`` or ``identity``.
    """

    dataset: str
    split: str
    qid: str
    image_id: str
    group_id: str
    image: ImageSource
    question: str
    answer: str
    answers: tuple[str, ...]
    answer_type: AnswerType
    lang: str = "en"
    relevant_boxes: tuple[Box, ...] | None = None
    sensitive_boxes: tuple[Box, ...] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return ``dataset/split/qid``: the sample's name in caches, seeds and predictions."""
        return f"{self.dataset}/{self.split}/{self.qid}"

    @property
    def image_key(self) -> str:
        """Return ``dataset/split/image_id``: what all questions about one image share."""
        return f"{self.dataset}/{self.split}/{self.image_id}"
