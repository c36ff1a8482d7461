"""The scenes of pre-training as tensors, and what its auxiliary heads are to predict."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from qpriv.datasets.face_scenes import scenes
from qpriv.datasets.scene_questions import Question
from qpriv.datasets.scenes import COLORS, KINDS, SIDE, Scene

PATCH = 8
GRID = SIDE // PATCH
NUM_PATCHES = GRID * GRID

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
"""Mean and deviation of CLIP's training images, channel by channel, as its processor has them."""


@dataclass(frozen=True)
class SceneTensors:
    """A split of `FaceScenes`, ready for training.

    Args:
        pixels: uint8 ``[n, 3, 64, 64]``.
        colors: Colour of the shape in each patch, ``[n, 64]``; 0 where there is none.
        kinds: Kind of the shape in each patch, ``[n, 64]``; 0 where there is none.
        captions: A description of each scene.
        questions: The questions about each scene.
    """

    pixels: Tensor
    colors: Tensor
    kinds: Tensor
    captions: list[str]
    questions: list[tuple[Question, ...]]

    @classmethod
    def draw(cls, split: str, number: int, seed: int) -> Self:
        """Draw the first scenes of a split."""
        drawn = tqdm(scenes(split, number, seed), total=number, desc=f"scenes ({split})")
        pictures, questions = zip(*((scene, asked) for _, scene, asked in drawn), strict=True)
        colors, kinds = zip(*(_patch_labels(scene) for scene in pictures), strict=True)
        return cls(
            pixels=torch.from_numpy(np.stack([s.pixels for s in pictures])).permute(0, 3, 1, 2),
            colors=torch.stack(colors),
            kinds=torch.stack(kinds),
            captions=[_caption(scene) for scene in pictures],
            questions=list(questions),
        )

    def __len__(self) -> int:
        """Return the number of scenes."""
        return len(self.pixels)


def normalise(pixels: Tensor) -> Tensor:
    """Return what CLIP's processor makes of uint8 images of the right size, same shape."""
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (CLIP_MEAN, CLIP_STD))
    return (pixels.float() / 255 - mean) / std


def patches(pixels: Tensor) -> Tensor:
    """Return the pixels of each patch in [0, 1], ``[B, 3, 64, 64] -> [B, 64, 192]``."""
    cut = pixels.float().div(255).unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)
    return cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def _patch_labels(scene: Scene) -> tuple[Tensor, Tensor]:
    """Return colour and kind of the shape that fills most of each patch, if a quarter or more."""
    blocks = scene.shape_map.reshape(GRID, PATCH, GRID, PATCH).transpose(0, 2, 1, 3)
    cells = blocks.reshape(NUM_PATCHES, -1)
    cover = np.stack([(cells == n).mean(1) for n in range(1, len(scene.shapes) + 1)])
    largest, filled = cover.argmax(0), cover.max(0) >= 0.25
    colors = np.array([1 + list(COLORS).index(shape.color) for shape in scene.shapes])
    kinds = np.array([1 + KINDS.index(shape.kind) for shape in scene.shapes])
    color, kind = (np.where(filled, values[largest], 0) for values in (colors, kinds))
    return torch.from_numpy(color), torch.from_numpy(kind)


def _caption(scene: Scene) -> str:
    things = [f"a {shape.color} {shape.kind}" for shape in scene.shapes]
    return " and ".join([*things, "a person" if scene.face else "a texture"])
