"""Scenes of the embedded world: drawn shapes that questions ask about, and a real face."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from . import faces
from .sample import Box

SIDE = 64
"""Width and height of a scene in pixels."""

KINDS = ("circle", "rectangle", "triangle")

COLORS = {
    "red": (230, 25, 25),
    "green": (20, 220, 20),
    "blue": (25, 25, 230),
    "yellow": (235, 230, 20),
    "black": (15, 15, 15),
    "teal": (0, 128, 128),
    "brown": (150, 60, 30),
    "gray": (128, 128, 128),
}
"""The colour words of easy-vqa with about its values; each shape jitters them a little."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A drawn shape: what questions ask about."""

    kind: str
    color: str
    box: Box


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A scene and the truth about it.

    Args:
        pixels: uint8 ``[64, 64, 3]``.
        shapes: One or two shapes that differ in kind and colour.
        shape_map: Which shape covers each pixel, ``[64, 64]``: 0 none, else its index plus one.
        face: Box of the face, None where there is none.
        identity: Whose face it is; None without a face, or where it is a morph of two people.
    """

    pixels: NDArray[np.uint8]
    shapes: tuple[Shape, ...]
    shape_map: NDArray[np.uint8]
    face: Box | None
    identity: int | None


def draw_scene(
    rng: Generator, identities: Sequence[int], *, face_share: float = 0.75, augment: bool = False
) -> Scene:
    """Draw a scene: a noisy gradient, a face or a face-free distractor, one or two shapes.

    Nothing overlaps. Shapes are 18 to 24 pixels wide, the face 24 to 32.

    Args:
        rng: Source of randomness; the same state gives the same scene.
        identities: Whose face it may be.
        face_share: Share of scenes with a face; the others hold a distractor.
        augment: Whether faces are mirrored, shifted and morphed, see `faces.face`.
    """
    pixels = gradient(rng)
    boxes = _place(rng, [int(rng.integers(24, 33)), *_shape_sizes(rng)])
    (left, top, right, bottom), shape_boxes = boxes[0], boxes[1:]
    has_face, identity = rng.random() < face_share, None
    if has_face:
        crop, identity = faces.face(rng, identities, right - left, augment=augment)
    else:
        crop = faces.distractor(rng, right - left)
    pixels[top:bottom, left:right] = crop
    shapes = _choose_shapes(rng, shape_boxes)
    shape_map = _draw_shapes(rng, pixels, shapes)
    return Scene(
        pixels=with_noise(rng, pixels),
        shapes=shapes,
        shape_map=shape_map,
        face=boxes[0] if has_face else None,
        identity=identity,
    )


def gradient(rng: Generator) -> NDArray[np.float64]:
    """Return a linear gradient between two light colours, ``[64, 64, 3]``."""
    start, end = rng.uniform(160, 255, (2, 3))
    angle = rng.uniform(0, 2 * np.pi)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1) - 0.5
    position = (rows * np.sin(angle) + columns * np.cos(angle)) / np.sqrt(2) + 0.5
    return np.asarray(start + (end - start) * position[..., None], dtype=np.float64)


def with_noise(rng: Generator, pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Return pixels with the grain of a camera, deviation 3 of 255."""
    noisy = pixels + rng.normal(0, 3, pixels.shape)
    return np.asarray(noisy.clip(0, 255), dtype=np.uint8)


def _shape_sizes(rng: Generator) -> list[int]:
    return [int(size) for size in rng.integers(18, 25, size=rng.integers(1, 3))]


def _place(rng: Generator, sizes: Sequence[int]) -> list[Box]:
    """Return a square box of each size, uniform over what is left free by those before it."""
    while True:
        boxes: list[Box] = []
        for size in sizes:
            free = np.ones((SIDE - size + 1, SIDE - size + 1), dtype=bool)
            for left, top, right, bottom in boxes:
                free[max(top - size + 1, 0) : bottom, max(left - size + 1, 0) : right] = False
            spots = np.flatnonzero(free)
            if not len(spots):
                break  # the boxes before it lie too badly: start again
            top, left = divmod(int(rng.choice(spots)), free.shape[1])
            boxes.append((left, top, left + size, top + size))
        else:
            return boxes


def _choose_shapes(rng: Generator, boxes: Sequence[Box]) -> tuple[Shape, ...]:
    kinds = rng.permutation(KINDS)[: len(boxes)]
    colors = rng.permutation(list(COLORS))[: len(boxes)]
    shapes = []
    for kind, color, (left, top, right, bottom) in zip(kinds, colors, boxes, strict=True):
        if kind == "rectangle":  # of any proportion
            bottom = top + int((bottom - top) * rng.uniform(0.6, 1.0))
        shapes.append(Shape(str(kind), str(color), (left, top, right, bottom)))
    return tuple(shapes)


def _draw_shapes(
    rng: Generator, pixels: NDArray[np.float64], shapes: Sequence[Shape]
) -> NDArray[np.uint8]:
    canvas = Image.new("L", (SIDE, SIDE))
    pen = ImageDraw.Draw(canvas)
    for number, shape in enumerate(shapes, start=1):
        left, top, right, bottom = shape.box
        right, bottom = right - 1, bottom - 1  # Pillow's corners are inclusive
        if shape.kind == "circle":
            pen.ellipse((left, top, right, bottom), fill=number)
        elif shape.kind == "rectangle":
            pen.rectangle((left, top, right, bottom), fill=number)
        else:
            pen.polygon([((left + right) // 2, top), (right, bottom), (left, bottom)], fill=number)
    shape_map = np.array(canvas)
    for number, shape in enumerate(shapes, start=1):
        pixels[shape_map == number] = np.array(COLORS[shape.color]) + rng.uniform(-15, 15, 3)
    return shape_map
