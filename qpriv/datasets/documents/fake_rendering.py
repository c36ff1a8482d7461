"""Drawing a fake page: lines of text on grey paper, with the exact place of every character."""

import functools
import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from .page import PageText, Word, quad_of


@dataclass(frozen=True, slots=True)
class Glyph:
    """A character and its place in pixels."""

    text: str
    left: float
    right: float
    top: float
    bottom: float


@dataclass(frozen=True, slots=True)
class DrawnPage:
    """A drawn page.

    Args:
        pixels: Grey values ``[H, W]``, uint8.
        page: Its words.
        glyphs: Its characters, line by line.
    """

    pixels: NDArray[np.uint8]
    page: PageText
    glyphs: tuple[tuple[Glyph, ...], ...]


@functools.cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """Return the font that comes inside Pillow: the same on every machine."""
    loaded = ImageFont.load_default(size)
    assert isinstance(loaded, ImageFont.FreeTypeFont)
    return loaded


def text_width(text: str, size: int) -> float:
    """Return the width of a text in pixels."""
    return font(size).getlength(text)


def draw_page(
    lines: list[list[tuple[float, str]]], size: tuple[int, int], font_size: int, rng: random.Random
) -> DrawnPage:
    """Draw lines of text pieces.

    Args:
        lines: For each line its pieces: left edge in pixels, text.
        size: Height and width in pixels.
        font_size: Height of the letters.
        rng: Draws paper, ink, jitter and decoration.
    """
    height, width = size
    pitch = height / len(lines)
    image = Image.new("L", (width, height), rng.randint(225, 240))
    pen, ink = ImageDraw.Draw(image), rng.randint(10, 60)
    offset = rng.uniform(0, max(0.0, pitch - font_size - 2))
    words: list[Word] = []
    glyphs: list[tuple[Glyph, ...]] = []
    for number, pieces in enumerate(lines):
        top = int(number * pitch + offset)
        for left, text in pieces:
            pen.text((left, top), text, fill=ink, font=font(font_size))
            glyphs.append(_glyphs(text, left, top, font_size))
            words += _words(glyphs[-1], number)
    _decorate(pen, size, int(pitch + offset / 2), ink, rng)
    return DrawnPage(_grain(image, rng), PageText(width, height, tuple(words)), tuple(glyphs))


def _glyphs(text: str, left: float, top: int, font_size: int) -> tuple[Glyph, ...]:
    face = font(font_size)
    edges = [left + face.getlength(text[:n]) for n in range(len(text) + 1)]
    return tuple(
        Glyph(character, start, stop, top, top + font_size + 2)
        for character, start, stop in zip(text, edges, edges[1:], strict=False)
    )


def _words(glyphs: tuple[Glyph, ...], line: int) -> list[Word]:
    """Return the words of a run of characters, split at its spaces."""
    words, run = [], list[Glyph]()
    for glyph in (*glyphs, Glyph(" ", 0, 0, 0, 0)):
        if glyph.text != " ":
            run.append(glyph)
        elif run:
            box = (int(run[0].left), int(run[0].top), int(run[-1].right) + 1, int(run[0].bottom))
            words.append(Word("".join(g.text for g in run), quad_of(box), line))
            run = []
    return words


def _decorate(
    pen: ImageDraw.ImageDraw, size: tuple[int, int], rule: int, ink: int, rng: random.Random
) -> None:
    height, width = size
    if rng.random() < 0.3:
        pen.line((2, rule, width - 3, rule), fill=ink + 80)
    if rng.random() < 0.2:
        pen.rectangle((0, 0, width - 1, height - 1), outline=ink + 80)


def _grain(image: Image.Image, rng: random.Random) -> NDArray[np.uint8]:
    pixels = np.asarray(image, dtype=np.float32)
    noise = np.random.default_rng(rng.getrandbits(64)).normal(0, 3, pixels.shape)
    return (pixels + noise).clip(0, 255).astype(np.uint8)
