"""Real faces and face-free textures of the embedded world, read from scikit-image's wheel.

The crops are the ``lfw_subset`` that scikit-image redistributes from Labeled Faces in the Wild
(100 faces, 100 other crops, 25 x 25 grey). They are read at run time and never copied: nothing
of this package holds a picture of a person.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from skimage import data

AUXILIARY = tuple(range(40))
"""Identities for pre-training, and what an attacker may know beforehand."""

MEMBERS = tuple(range(40, 70))
"""Identities in the images a victim fine-tunes on."""

NON_MEMBERS = tuple(range(70, 100))
"""Identities nobody trains on."""

UNSEEN = MEMBERS + NON_MEMBERS
"""Identities no embedded model and no attacker has seen: the gallery of re-identification."""

FACE_SIZE = 25
"""Side of the stored crops in pixels."""

_PARTS_OF_FACES = {125, 126, 130, 142, 161, 173, 193, 195, 196}
"""Rows of ``lfw_subset`` filed as non-faces in which a part of a face can be seen."""

_PHOTOGRAPHS = (
    "brick",
    "grass",
    "gravel",
    "coffee",
    "chelsea",
    "moon",
    "immunohistochemistry",
)
"""Photographs in the same wheel that show no person."""


@cache
def _crops() -> NDArray[np.uint8]:
    grey: NDArray[np.float64] = data.lfw_subset()  # type: ignore[no-untyped-call]
    return np.asarray(np.round(grey * 255), dtype=np.uint8)


def gallery(identities: Sequence[int] = UNSEEN) -> NDArray[np.uint8]:
    """Return the stored faces of some identities, grey ``[K, 25, 25]``.

    >>> gallery().shape
    (60, 25, 25)
    """
    return _crops()[list(identities)]


@cache
def _non_faces() -> NDArray[np.uint8]:
    """Return the textured non-faces: a flat or half-black one could pass for a drawn shape."""
    rows = [row for row in range(100, 200) if row not in _PARTS_OF_FACES]
    crops = _crops()[rows]
    textured = (crops.std((1, 2)) > 20) & ((crops < 10).mean((1, 2)) < 0.1)
    return np.asarray(crops[textured])


@cache
def _photographs() -> tuple[NDArray[np.uint8], ...]:
    """Return the photographs in RGB at half size, so that a small cut-out shows texture."""
    images = (Image.fromarray(getattr(data, name)()).convert("RGB") for name in _PHOTOGRAPHS)
    return tuple(np.asarray(image.reduce(2)) for image in images)


def photograph_cut(rng: Generator, size: int) -> NDArray[np.uint8]:
    """Return a random square of a random photograph, ``[size, size, 3]``."""
    photographs = _photographs()
    source = photographs[rng.integers(len(photographs))]
    top, left = (rng.integers(extent - size + 1) for extent in source.shape[:2])
    return source[top : top + size, left : left + size]


def distractor(rng: Generator, size: int) -> NDArray[np.uint8]:
    """Return something textured that is no face, toned like one or in colour, ``[S, S, 3]``."""
    if rng.random() < 0.5:
        return photograph_cut(rng, size)
    crops = _non_faces()
    return _tone(rng, _resize(crops[rng.integers(len(crops))], size))


def face(
    rng: Generator, identities: Sequence[int], size: int, *, augment: bool = False
) -> tuple[NDArray[np.uint8], int | None]:
    """Return a face ``[size, size, 3]`` and whose it is.

    Brightness and skin tone vary. Forty auxiliary faces are few to learn from, so `augment`
    multiplies them: mirrored, shifted by up to two pixels of the crop, and half of them a morph
    of two people, which belongs to nobody (None).

    Args:
        rng: Source of randomness.
        identities: Whom to choose from.
        size: Side of the result in pixels.
        augment: Whether to mirror, shift and morph.
    """
    identity = int(rng.choice(identities))
    crop = _crops()[identity].astype(np.float64)
    owner: int | None = identity
    if augment:
        if rng.random() < 0.5:
            share, other = rng.uniform(0.3, 0.7), _crops()[int(rng.choice(identities))]
            other = other[:, ::-1] if rng.random() < 0.5 else other
            crop, owner = share * crop + (1 - share) * other, None
        crop = _jitter(rng, crop)
    return _tone(rng, _resize(np.round(crop).astype(np.uint8), size)), owner


def _jitter(rng: Generator, crop: NDArray[np.float64]) -> NDArray[np.float64]:
    crop = crop[:, ::-1] if rng.random() < 0.5 else crop
    left, top = rng.integers(3, size=2)
    side = FACE_SIZE - 2
    return crop[top : top + side, left : left + side]


def _resize(crop: NDArray[np.uint8], size: int) -> NDArray[np.float64]:
    image = Image.fromarray(np.ascontiguousarray(crop)).resize(
        (size, size), Image.Resampling.BICUBIC
    )
    return np.asarray(image, dtype=np.float64)


def _tone(rng: Generator, grey: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Colour a grey crop with a random brightness and a warm tint, ``[S, S] -> [S, S, 3]``."""
    tint = np.array([1.0, rng.uniform(0.8, 0.92), rng.uniform(0.65, 0.82)])
    toned = grey[..., None] * rng.uniform(0.9, 1.2) * tint
    return np.asarray(toned.clip(0, 255), dtype=np.uint8)
