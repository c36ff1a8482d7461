"""`Portraits`: the pictures of the people whom an attacker tries to recognise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

from qpriv.datasets.sample import ArrayImage, Box, VQASample
from qpriv.metrics.reidentification import ranks

from ...observation import Scenes


@dataclass(frozen=True)
class Portraits:
    """One face a person, as it is stored.

    Args:
        faces: ``[3, h_i, w_i]`` in [0, 1], of any sizes.
        people: Identity of each.
    """

    faces: tuple[Tensor, ...]
    people: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of people."""
        return len(self.faces)

    def __getitem__(self, rows: slice) -> Self:
        """Return some of the people."""
        return type(self)(self.faces[rows], self.people[rows])

    @classmethod
    def of(cls, samples: Sequence[VQASample]) -> Self:
        """Cut the first sensitive box out of the picture of each person who is named."""
        named = [own for own in samples if own.sensitive_boxes and "identity" in own.meta]
        return cls(
            tuple(
                _cut(_pixels(own), own.sensitive_boxes[0]) for own in named if own.sensitive_boxes
            ),
            tuple(int(own.meta["identity"]) for own in named),
        )

    @classmethod
    def within(cls, scenes: Scenes, most: int) -> Self:
        """Cut faces out of scenes, one a person, and number these people afresh.

        Args:
            scenes: The scenes; a face of nobody who is named counts as a person of its own.
            most: At most so many people.
        """
        found: dict[object, Tensor] = {}
        for row, (box, who) in enumerate(zip(scenes.faces, scenes.identities, strict=True)):
            person = ("unnamed", row) if who is None else who
            if box is not None and person not in found and len(found) < most:
                found[person] = _cut(scenes.pictures[row], box)
        return cls(tuple(found.values()), tuple(range(len(found))))

    def resized(self, height: int, width: int) -> Tensor:
        """Return all faces at one size, ``[G, 3, height, width]``."""
        return torch.cat([fitted(face, height, width) for face in self.faces])

    def ranks(self, scores: Tensor, people: Sequence[int]) -> Tensor:
        """Return the rank of the true person for each face, 0 for the first.

        Args:
            scores: Similarity of each face to each portrait, ``[P, G]``.
            people: Whose face each is; everybody is in the gallery.
        """
        return ranks(scores, torch.tensor(people), torch.tensor(self.people))

    def colours(self) -> Tensor:
        """Return the mean colour of each face, ``[G, 3]``."""
        return torch.stack([face.mean(dim=(1, 2)) for face in self.faces])


def fitted(face: Tensor, height: int, width: int) -> Tensor:
    """Return a face ``[3, h, w]`` at another size, ``[1, 3, height, width]``."""
    return interpolate(
        face[None], (height, width), mode="bicubic", antialias=True, align_corners=False
    )


@dataclass(frozen=True)
class Warp:
    """How another photograph of the same person differs: in pose and light.

    Each is the standard deviation of a normal draw; `strength` multiplies all of them.

    Args:
        degrees: Rotation.
        pixels: Shift along each axis, in pixels of the portrait.
        scale: Relative change of size.
        light: Slope of a light from one side: by which share it brightens the one edge and
            darkens the other.
        strength: 0 is the very same photograph.
    """

    degrees: float = 4.0
    pixels: float = 1.0
    scale: float = 0.04
    light: float = 0.25
    strength: float = 1.0

    def __call__(self, portraits: Portraits, seed: int = 0) -> Portraits:
        """Return the portraits, each as another photograph would show it."""
        generator = torch.Generator().manual_seed(seed)
        draws = self.strength * torch.randn(len(portraits), 6, generator=generator)
        faces = [self._one(face, d) for face, d in zip(portraits.faces, draws, strict=True)]
        return replace(portraits, faces=tuple(faces))

    def _one(self, face: Tensor, drawn: Tensor) -> Tensor:
        turn, shift_x, shift_y, size, light_x, light_y = drawn.tolist()
        height, width = face.shape[-2:]
        angle, scale = math.radians(self.degrees * turn), math.exp(self.scale * size)
        cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
        to_x, to_y = 2 * self.pixels * shift_x / width, 2 * self.pixels * shift_y / height
        matrix = torch.tensor([[[cos, -sin, to_x], [sin, cos, to_y]]], dtype=face.dtype)
        where = affine_grid(matrix, [1, *face.shape], align_corners=False)
        moved = grid_sample(face[None], where, "bicubic", "border", align_corners=False)[0]
        rows = torch.linspace(-1, 1, height)[:, None]
        columns = torch.linspace(-1, 1, width)[None]
        lit = 1 + self.light * (light_x * columns + light_y * rows)
        warped: Tensor = (moved * lit.clamp(min=0.1)).clamp(0, 1)
        return warped


MIN_SPREAD = 0.02
"""No tone is known better than to this share: it is measured on few scenes."""


@dataclass(frozen=True)
class Tones:
    """By which factor each channel of a portrait is brighter in a scene: a normal distribution.

    Args:
        mean: ``[3]``.
        covariance: ``[3, 3]``.
    """

    mean: Tensor
    covariance: Tensor

    @classmethod
    def between(cls, portraits: Portraits, scenes: Scenes) -> Self:
        """Learn from the mean colours of portraits and of other people's faces in scenes.

        How much a tone varies is what the colour of one person's face does from scene to scene;
        where nobody is seen twice, what colours of all faces do.
        """
        faces = [(row, box) for row, box in enumerate(scenes.faces) if box is not None]
        seen = torch.stack([_cut(scenes.pictures[row], box).mean(dim=(1, 2)) for row, box in faces])
        mean = seen.mean(dim=0) / portraits.colours().mean(dim=0).clamp(min=1e-3)
        relative = _within_people(seen.clamp(min=1e-3).log().double(), scenes, faces)
        floor = MIN_SPREAD**2 * torch.eye(3).double()
        covariance = torch.outer(mean, mean).double() * (relative + floor)
        return cls(mean, covariance.float())

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return some tones, ``[count, 3]``."""
        root = torch.linalg.cholesky(self.covariance)
        drawn: Tensor = self.mean + torch.randn(count, 3, generator=generator) @ root.T
        return drawn


def paste(
    samples: Sequence[VQASample],
    portraits: Portraits,
    tones: Tones,
    rounds: int,
    seed: int = 0,
) -> list[VQASample]:
    """Return the attacker's scenes with faces of a gallery in place of those they show.

    Samples without a sensitive box are left out; the others are used in turn.

    Args:
        samples: Scenes of the attacker's own.
        portraits: The people.
        tones: How a face of a scene differs in colour from a portrait.
        rounds: Scenes of each person.
        seed: Seed of tones; scenes of another seed are other images to whoever remembers images.
    """
    hosts = [own for own in samples if own.sensitive_boxes]
    if not hosts:
        return []
    generator = torch.Generator().manual_seed(seed)
    drawn = tones.draw(rounds * len(portraits), generator)
    return [
        _pasted(hosts[n % len(hosts)], portraits, n % len(portraits), tone, f"pasted-{seed}-{n}")
        for n, tone in enumerate(drawn)
    ]


def _pasted(host: VQASample, portraits: Portraits, row: int, tone: Tensor, name: str) -> VQASample:
    assert host.sensitive_boxes
    left, top, right, bottom = host.sensitive_boxes[0]
    pixels = _pixels(host)
    face = fitted(portraits.faces[row], bottom - top, right - left)[0] * tone[:, None, None]
    pixels[:, top:bottom, left:right] = face.clamp(0, 1)
    stored = (pixels.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
    return replace(
        host,
        qid=name,
        image_id=name,
        group_id=f"{host.split}/{name}",
        image=ArrayImage(stored),
        sensitive_boxes=host.sensitive_boxes[:1],
        meta={**host.meta, "identity": portraits.people[row]},
    )


def _pixels(sample: VQASample) -> Tensor:
    array = np.array(sample.image.load(), dtype=np.float32)
    return torch.from_numpy(array).permute(2, 0, 1) / 255


def _cut(picture: Tensor, box: Box) -> Tensor:
    left, top, right, bottom = box
    return picture[:, top:bottom, left:right]


def _within_people(colours: Tensor, scenes: Scenes, faces: Sequence[tuple[int, Box]]) -> Tensor:
    """Return the covariance of colours ``[n, 3]`` about each person's mean, or about that of all."""
    rows: dict[int, list[int]] = {}
    for number, (row, _) in enumerate(faces):
        who = scenes.identities[row]
        if who is not None:
            rows.setdefault(who, []).append(number)
    several = [own for own in rows.values() if len(own) > 1] or [list(range(len(colours)))]
    centred = torch.cat([colours[own] - colours[own].mean(dim=0) for own in several])
    return centred.T @ centred / max(1, len(centred) - len(several))
