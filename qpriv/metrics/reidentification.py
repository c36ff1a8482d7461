"""Is the person in a reconstruction recognisable: rank of the true identity in a gallery."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate, normalize

FACE_SIZE = 24


def face_crops(
    pictures: Tensor, boxes: Sequence[tuple[int, int, int, int]], size: int = FACE_SIZE
) -> Tensor:
    """Return one box of each picture, resized to a square, ``[B, 3, size, size]``.

    Args:
        pictures: ``[B, 3, H, W]``.
        boxes: Left, top, right, bottom of the face in each picture.
        size: Side of the square in pixels.
    """
    crops = [
        interpolate(
            picture[None, :, top:bottom, left:right],
            (size, size),
            mode="bilinear",
            antialias=True,
            align_corners=False,
        )[0]
        for picture, (left, top, right, bottom) in zip(pictures, boxes, strict=True)
    ]
    return torch.stack(crops) if crops else pictures.new_zeros(0, 3, size, size)


def correlation(probes: Tensor, gallery: Tensor) -> Tensor:
    """Return the correlation of grey values between faces, the larger one of both mirrorings.

    It ignores brightness, contrast and tint, which scenes vary.

    Args:
        probes: ``[P, 3, s, s]``.
        gallery: ``[G, 3, s, s]``.

    Returns:
        Similarities ``[P, G]`` in [-1, 1].
    """
    known = _signature(gallery)
    straight, mirrored = (_signature(p) for p in (probes, probes.flip(-1)))
    return torch.maximum(straight @ known.T, mirrored @ known.T)


def _signature(faces: Tensor) -> Tensor:
    grey = faces.mean(dim=1).flatten(1)
    return normalize(grey - grey.mean(dim=1, keepdim=True), dim=1)


def ranks(similarity: Tensor, identities: Tensor, gallery_identities: Tensor) -> Tensor:
    """Return the rank of the true identity among the gallery's, 0 for the first.

    A gallery face as similar as the true one ranks before it: ties never help the attacker, nor do
    similarities that are not numbers.

    Args:
        similarity: ``[P, G]``.
        identities: True identity of each probe, ``[P]``.
        gallery_identities: Identity of each gallery picture, ``[G]``, each once.

    >>> ranks(torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([7]), torch.tensor([3, 5, 7])).tolist()
    [1]
    >>> ranks(torch.full((1, 3), torch.nan), torch.tensor([7]), torch.tensor([3, 5, 7])).tolist()
    [2]
    """
    is_true = identities[:, None] == gallery_identities[None, :]
    if not bool((is_true.sum(dim=1) == 1).all()):
        raise ValueError("each probe's identity must be in the gallery exactly once")
    true = similarity[is_true]
    return (~(similarity < true[:, None]) & ~is_true).sum(dim=1)


@dataclass(frozen=True)
class Reidentification:
    """Ranks of the true identities and what chance would give.

    Args:
        ranks: Rank of the truth for each probe, ``[P]``, 0 is first.
        gallery_size: Number of people to choose from.
    """

    ranks: Tensor
    gallery_size: int

    def hits(self, k: int) -> Tensor:
        """Return 1.0 for each probe whose true identity is among the first ``k``, ``[P]``."""
        return (self.ranks < k).double()

    def chance(self, k: int) -> float:
        """Return the share of hits of a blind guess."""
        return min(1.0, k / self.gallery_size)
