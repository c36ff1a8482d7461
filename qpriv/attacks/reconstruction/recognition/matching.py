"""Whose face is it? Similarities of faces that crossed to the portraits of a gallery.

*Masked matching* compares the pixels that crossed, and nothing that was painted over a hole. What a
person looks like in a scene is the portrait at the size of the box, times a tone of each channel;
the tone is unknown but for its distribution, and is fitted to each comparison.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from qpriv.datasets.sample import Box
from qpriv.metrics.reidentification import correlation, face_crops

from .portraits import Portraits, Tones
from .reading import Reading


def whole_crops(restored: Tensor, boxes: Sequence[Box], portraits: Portraits) -> Tensor:
    """Return the correlation of whole faces as repainted with portraits, ``[P, G]``.

    Args:
        restored: Reconstructions ``[P, 3, H, W]``.
        boxes: The face in each.
        portraits: The gallery.
    """
    whole = [(0, 0, face.shape[2], face.shape[1]) for face in portraits.faces]
    known = [face_crops(f[None], [b]) for f, b in zip(portraits.faces, whole, strict=True)]
    return correlation(face_crops(restored, boxes), torch.cat(known))


def crossed_pixels(
    reading: Reading, boxes: Sequence[Box], portraits: Portraits, tones: Tones
) -> Tensor:
    """Return minus the weighted squared error over the box's pixels that crossed, ``[P, G]``.

    Each pixel is weighted by its inverse variance; the tone of every pair is the likeliest one.

    Args:
        reading: What was read of the scenes, and what of them crossed.
        boxes: The face in each.
        portraits: The gallery.
        tones: How a face of a scene differs in colour from a portrait.
    """
    scores = torch.zeros(len(boxes), len(portraits), dtype=torch.double)
    for size, rows in _by_size(boxes).items():
        faces = portraits.resized(*size).flatten(2).double()
        inside = [(..., slice(top, bottom), slice(left, right)) for left, top, right, bottom in
                  (boxes[row] for row in rows)]  # fmt: skip
        windows = list(zip(rows, inside, strict=True))
        seen = torch.stack([reading.pictures[row][at] for row, at in windows]).flatten(2).double()
        trust = torch.stack(
            [reading.crossed[row][at] / reading.variance[at] for row, at in windows]
        )
        scores[rows] = _fit(seen, trust.flatten(2).double(), faces, tones)
    return scores


def _by_size(boxes: Sequence[Box]) -> dict[tuple[int, int], list[int]]:
    """Return the rows of the boxes of each height and width."""
    rows: dict[tuple[int, int], list[int]] = {}
    for row, (left, top, right, bottom) in enumerate(boxes):
        rows.setdefault((bottom - top, right - left), []).append(row)
    return rows


def _fit(seen: Tensor, trust: Tensor, faces: Tensor, tones: Tones) -> Tensor:
    """Return the scores ``[n, G]`` of faces ``[n, 3, h w]`` for portraits ``[G, 3, h w]``."""
    mean = tones.mean.double()
    square = torch.einsum("ncp,gcp->ngc", trust, faces.square())
    product = torch.einsum("ncp,gcp->ngc", trust * seen, faces)
    power = (trust * seen.square()).sum(dim=(1, 2))[:, None]
    error = power - 2 * product @ mean + square @ mean.square()
    return likeliest(error, product - mean * square, torch.diag_embed(square), tones)


def likeliest(error: Tensor, slope: Tensor, curvature: Tensor, tones: Tones) -> Tensor:
    """Return minus the penalised squared error at the likeliest deviation from the mean tone.

    Args:
        error: Weighted squared error at the mean tone, ``[..., G]``.
        slope: Minus half its derivative by the tone, ``[..., G, 3]``.
        curvature: Half its second derivative, ``[..., G, 3, 3]``.
        tones: Distribution of tones.
    """
    stiff = curvature.double() + torch.linalg.inv(tones.covariance.double())
    gain = torch.linalg.solve(stiff, slope.double().unsqueeze(-1)).squeeze(-1)
    score: Tensor = (slope * gain).sum(dim=-1) - error.double()
    return score
