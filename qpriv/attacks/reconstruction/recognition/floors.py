"""Floors by knowledge: what each attacker could paint of a face who had only so much.

Each is a picture to be compared with the truth in the face box. In order of what they know: that
a face is where the mask says; its true box; its box and the pixels that crossed of it, completed by
how faces vary; the same, completed by the portraits of a gallery, as likely as each is.
"""

from dataclasses import replace

import torch
from torch import Tensor

from qpriv.datasets.sample import Box
from qpriv.metrics.reidentification import face_crops

from ...observation import Scenes
from ..scoring import Baselines
from .matching import crossed_pixels
from .portraits import Portraits, Tones, fitted
from .reading import Reading

COMPONENTS = 40
"""Eigenfaces."""
SIDE = 24
CALIBRATION = 0.1
"""How much one pixel's evidence counts: errors within a patch go together."""


def painted(pictures: Tensor, faces: list[Tensor | None], boxes: list[Box | None]) -> Tensor:
    """Return pictures with a face in each box; nothing where there is none."""
    out = pictures.clone()
    for row, (face, box) in enumerate(zip(faces, boxes, strict=True)):
        if face is not None and box is not None:
            left, top, right, bottom = box
            out[row, :, top:bottom, left:right] = fitted(face, bottom - top, right - left)[0]
    return out.clamp(0, 1)


def with_crossed(pictures: Tensor, reading: Reading) -> Tensor:
    """Return pictures with what was read where patches crossed."""
    return torch.where(reading.crossed[:, None], reading.pictures.clamp(0, 1), pictures)


def mean_face_at(floors: Baselines, scenes: Scenes, boxes: list[Box | None]) -> Tensor:
    """Return the mean image with the mean face at the given boxes."""
    return painted(floors.images(scenes), [floors.mean_face] * len(boxes), boxes)


def eigenfaces(floors: Baselines, scenes: Scenes, reading: Reading, auxiliary: Scenes) -> Tensor:
    """Return faces at their true boxes, completed from the pixels that crossed of them.

    The conditional mean of a Gaussian over auxiliary faces, of which the first components count.
    """
    rows = [row for row, box in enumerate(auxiliary.faces) if box is not None]
    boxes = [box for box in auxiliary.faces if box is not None]
    crops = face_crops(auxiliary.pictures[rows], boxes, SIDE).flatten(1)
    mean = crops.mean(dim=0)
    rank = min(COMPONENTS, len(crops) - 1)
    _, scale, basis = torch.linalg.svd(crops - mean, full_matrices=False)
    basis = basis[:rank] * (scale[:rank] / max(1, len(crops) - 1) ** 0.5)[:, None]
    # where no patch crossed nothing was read: an average face stands there
    told = with_crossed(mean_face_at(floors, scenes, list(scenes.faces)), reading)
    filled = replace(reading, pictures=told)
    faces = [_completed(filled, row, box, mean, basis) for row, box in enumerate(scenes.faces)]
    whole = painted(floors.images(scenes), faces, list(scenes.faces))
    return with_crossed(whole, reading)


def _completed(
    reading: Reading, row: int, box: Box | None, mean: Tensor, basis: Tensor
) -> Tensor | None:
    if box is None:
        return None
    seen, crossed, noise = (
        face_crops(each[None].float(), [box], SIDE)[0]
        for each in (
            reading.pictures[row],
            reading.crossed[row].expand(3, -1, -1),
            reading.variance,
        )
    )
    trust = (CALIBRATION * crossed / noise).flatten()
    stiff = (basis * trust) @ basis.T + torch.eye(len(basis))
    found = torch.linalg.solve(stiff, (basis * trust) @ (seen.flatten() - mean))
    whole: Tensor = mean + found @ basis
    return whole.reshape(3, SIDE, SIDE)


def gallery_posterior(
    floors: Baselines, scenes: Scenes, reading: Reading, portraits: Portraits, tones: Tones
) -> Tensor:
    """Return faces at their true boxes as the portraits' mean, each as likely as it is."""
    rows = [row for row, box in enumerate(scenes.faces) if box is not None]
    boxes = [box for box in scenes.faces if box is not None]
    part = Reading(reading.pictures[rows], reading.variance, reading.crossed[rows])
    likely = (CALIBRATION / 2 * crossed_pixels(part, boxes, portraits, tones)).softmax(dim=1)
    faces: list[Tensor | None] = [None] * len(scenes)
    side = (SIDE + 8, SIDE + 8)
    known = portraits.resized(*side) * tones.mean[:, None, None]
    for row, share in zip(rows, likely.float(), strict=True):
        faces[row] = torch.einsum("g,gchw->chw", share, known)
    whole = painted(floors.images(scenes), faces, list(scenes.faces))
    return with_crossed(whole, reading)
