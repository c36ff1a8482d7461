"""Taking words off a page, and checking that they and nothing else are gone."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from .page import Quad, Word

Fill = Literal["white", "paper", "black"]
"""White is the source's; paper hides that something was erased; black is for figures."""

Point = tuple[float, float]


def widened(quad: Quad, margin: float = 0.08) -> tuple[Point, ...]:
    """Return the corners of a word moved outwards by at least two pixels.

    Args:
        quad: The corners.
        margin: Share of the word's height, where that is more than two pixels.
    """
    corners = np.array(quad, dtype=float).reshape(4, 2)
    across, down = corners[1] - corners[0], corners[3] - corners[0]
    pad = max(2.0, margin * float(np.hypot(*down)))
    steps = [vector / max(float(np.hypot(*vector)), 1e-6) * pad for vector in (across, down)]
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    moved = [
        corner + signs_[0] * steps[0] + signs_[1] * steps[1]
        for corner, signs_ in zip(corners, signs, strict=True)
    ]
    return tuple((float(x), float(y)) for x, y in moved)


def region(size: tuple[int, int], words: Iterable[Word], margin: float = 0.08) -> NDArray[np.bool_]:
    """Return which pixels ``[H, W]`` the erasure of some words covers.

    Args:
        size: Width and height of the page.
        words: The words.
        margin: As for `widened`.
    """
    mask = Image.new("1", size)
    pen = ImageDraw.Draw(mask)
    for word in words:
        pen.polygon(widened(word.quad, margin), fill=1)
    return np.asarray(mask, dtype=bool)


def erase(
    image: Image.Image, words: Sequence[Word], fill: Fill = "white", margin: float = 0.08
) -> Image.Image:
    """Return a page without some words, every other pixel as it was.

    Args:
        image: The page in mode RGB.
        words: What is erased.
        fill: What takes its place.
        margin: As for `widened`.
    """
    pixels = np.array(image.convert("RGB"))
    if fill == "paper":
        for word in words:
            mask = region(image.size, [word], margin)
            pixels[mask] = paper_tone(pixels, word)
    else:
        pixels[region(image.size, words, margin)] = 255 if fill == "white" else 0
    return Image.fromarray(pixels)


def paper_tone(pixels: NDArray[np.uint8], word: Word) -> NDArray[np.uint8]:
    """Return the colour of the paper around a word: the bright tone of its neighbourhood."""
    left, top, right, bottom = word.box
    reach = max(4, bottom - top)
    around = pixels[
        max(0, top - reach) : bottom + reach, max(0, left - reach) : right + reach
    ].reshape(-1, 3)
    if not len(around):
        return np.full(3, 255, dtype=np.uint8)
    return np.percentile(around, 75, axis=0).astype(np.uint8)


def untouched_outside(
    before: Image.Image, after: Image.Image, words: Iterable[Word], margin: float = 0.08
) -> bool:
    """Return whether an erasure changed only what it covers."""
    outside = ~region(before.size, words, margin)
    return bool((np.asarray(before)[outside] == np.asarray(after)[outside]).all())


def digest(image: Image.Image) -> str:
    """Return the SHA-256 of an image's pixels."""
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()
