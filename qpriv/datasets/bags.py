"""Bags for the sensitivity teacher: images labelled as a whole, sensitive or not."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import Dataset

from qpriv.errors import DataError

from . import faces
from .sample import ArrayImage, Box, ImageSource
from .scenes import SIDE, draw_scene, gradient, with_noise


@dataclass(frozen=True, slots=True, kw_only=True)
class BagSample:
    """An image of D_priv and its label; its patches are the instances of the bag.

    Args:
        dataset: Name of the data set class.
        split: Name of the split.
        image_id: Id of the image, unique in data set and split.
        source: What it was taken from, such as ``faces`` or ``digits``.
        image: Where the pixels come from.
        sensitive: Whether something sensitive can be seen anywhere: all that is trained on.
        sensitive_boxes: Where it is, for measuring only; None where unknown.
        group_id: What must not straddle two splits: the person or patient where known.
    """

    dataset: str
    split: str
    image_id: str
    source: str
    image: ImageSource
    sensitive: bool
    sensitive_boxes: tuple[Box, ...] | None = None
    group_id: str = ""

    @property
    def key(self) -> str:
        """Return ``dataset/split/image_id``: the sample's name in caches and seeds."""
        return f"{self.dataset}/{self.split}/{self.image_id}"


Picture = tuple[NDArray[np.uint8], tuple[Box, ...]]
Draw = Callable[[Generator, Sequence[int]], Picture]


class FaceBags(Dataset[BagSample]):
    """The embedded D_priv: faces on textures and gradients, against digits, textures and scenes.

    Half of the images are positive. Training faces are the auxiliary people's; validation
    and test show people whom neither the embedded models nor the teacher have seen.

    Args:
        split: ``train``, ``val`` or ``test``.
        num_images: Number of images.
        seed: Chooses other images.
    """

    splits: ClassVar[tuple[str, ...]] = ("train", "val", "test")

    def __init__(self, split: str = "train", num_images: int = 2500, seed: int = 0) -> None:
        if split not in self.splits:
            offered = ", ".join(self.splits)
            raise DataError(f"unknown split {split!r}", where="FaceBags", remedy=f"use {offered}")
        self.split = split
        self.samples = [_draw(split, seed, index) for index in range(num_images)]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.samples)

    def __getitem__(self, index: int) -> BagSample:
        """Return a labelled image."""
        return self.samples[index]


def _draw(split: str, seed: int, index: int) -> BagSample:
    rng = np.random.default_rng([zlib.crc32(f"bags/{split}".encode()), seed, index])
    sensitive = index % 2 == 0
    people = faces.AUXILIARY if split == "train" else faces.UNSEEN
    source = "faces" if sensitive else list(_NEGATIVES)[rng.integers(len(_NEGATIVES))]
    pixels, boxes = _faces(rng, people) if sensitive else _NEGATIVES[source](rng, people)
    return BagSample(
        dataset="FaceBags",
        split=split,
        image_id=str(index),
        source=source,
        image=ArrayImage(with_noise(rng, pixels)),
        sensitive=sensitive,
        sensitive_boxes=boxes,
    )


def _faces(rng: Generator, people: Sequence[int]) -> Picture:
    """Paste one face, or two side by side that do not overlap."""
    pixels, boxes = _background(rng), []
    number = int(rng.integers(1, 3))
    for column in range(number):
        size, room = int(rng.integers(22, 33)), SIDE // number
        left = column * room + int(rng.integers(room - size + 1))
        top = int(rng.integers(SIDE - size + 1))
        face, _ = faces.face(rng, people, size, augment=True)
        pixels[top : top + size, left : left + size] = face
        boxes.append((left, top, left + size, top + size))
    return pixels, tuple(boxes)


def _digits(rng: Generator, people: Sequence[int]) -> Picture:
    """Paste a handwritten digit, bright on black as in the release."""
    return _pasted(rng, _digit(rng)), ()


def _distractors(rng: Generator, people: Sequence[int]) -> Picture:
    return _pasted(rng, faces.distractor(rng, int(rng.integers(22, 33)))), ()


def _textures(rng: Generator, people: Sequence[int]) -> Picture:
    return _background(rng), ()


def _scenes(rng: Generator, people: Sequence[int]) -> Picture:
    """Draw a scene without a face, so that its shapes count as harmless."""
    return draw_scene(rng, people, face_share=0.0).pixels, ()


_NEGATIVES: dict[str, Draw] = {
    "digits": _digits,
    "distractors": _distractors,
    "textures": _textures,
    "scenes": _scenes,
}


def _background(rng: Generator) -> NDArray[np.uint8]:
    if rng.random() < 0.5:
        return faces.photograph_cut(rng, SIDE).copy()
    return np.asarray(gradient(rng), dtype=np.uint8)


def _pasted(rng: Generator, crop: NDArray[np.uint8]) -> NDArray[np.uint8]:
    pixels, size = _background(rng), len(crop)
    left, top = rng.integers(SIDE - size + 1, size=2)
    pixels[top : top + size, left : left + size] = crop
    return pixels


@cache
def _all_digits() -> NDArray[np.uint8]:
    return np.asarray(load_digits().images * (255 / 16), dtype=np.uint8)


def _digit(rng: Generator) -> NDArray[np.uint8]:
    digits, size = _all_digits(), int(rng.integers(22, 33))
    image = Image.fromarray(digits[rng.integers(len(digits))]).convert("RGB")
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC))
