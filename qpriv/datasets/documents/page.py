"""The text of a page: words with their positions, from any OCR engine."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from qpriv.datasets.sample import Box

Quad = tuple[float, float, float, float, float, float, float, float]
"""Four corners x1, y1, .. x4, y4 in pixels, in reading direction from the word's top left."""


def quad_of(box: Box) -> Quad:
    """Return the corners of an upright box.

    >>> quad_of((1, 2, 5, 4))
    (1, 2, 5, 2, 5, 4, 1, 4)
    """
    left, top, right, bottom = box
    return (left, top, right, top, right, bottom, left, bottom)


def _stretched(quad: Quad, x: float, y: float) -> Quad:
    a, b, c, d, e, f, g, h = quad
    return (a * x, b * y, c * x, d * y, e * x, f * y, g * x, h * y)


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a page.

    Args:
        text: The word as read, with the punctuation glued to it.
        quad: Its corners; on a rotated scan no upright rectangle.
        line: Number of its line on the page.
    """

    text: str
    quad: Quad
    line: int = 0

    @property
    def box(self) -> Box:
        """Return the upright box around the word: whole pixels, right and bottom exclusive."""
        xs, ys = self.quad[::2], self.quad[1::2]
        return int(min(xs)), int(min(ys)), -int(-max(xs) // 1), -int(-max(ys) // 1)


@dataclass(frozen=True, slots=True)
class PageText:
    """The words of one page in reading order.

    Args:
        width: Width in pixels of the image that was read; the file's may differ.
        height: Its height.
        words: The words, line by line.
        angle: Clockwise rotation of the text in degrees, as the engine estimated it.
    """

    width: float
    height: float
    words: tuple[Word, ...]
    angle: float = 0.0

    def scaled_to(self, width: int, height: int) -> "PageText":
        """Return the same text in the pixels of an image of another size.

        OCR is often run on another rendering than the one that is shipped.
        """
        if (width, height) == (self.width, self.height):
            return self
        x, y = width / self.width, height / self.height
        words = tuple(replace(word, quad=_stretched(word.quad, x, y)) for word in self.words)
        return PageText(width, height, words, self.angle)

    @property
    def text(self) -> str:
        """Return the words joined by spaces."""
        return " ".join(word.text for word in self.words)


def boxes_of(words: Iterable[Word]) -> tuple[Box, ...]:
    """Return the upright boxes of some words."""
    return tuple(word.box for word in words)


class TextSource(Protocol):
    """Where a page's words come from; nothing is read before `load`."""

    def load(self) -> PageText:
        """Return the words, in the pixels of the image that was read."""
        ...


@dataclass(frozen=True, slots=True)
class KnownText:
    """Words already in memory."""

    page: PageText

    def load(self) -> PageText:
        """Return the words."""
        return self.page
