"""`TokenMetric`: how far a token is from what it would be if a portrait had crossed.

The metric is learned on the attacker's own scenes: a linear model of a token from the pixels of its
patch, and the covariance of what that leaves unexplained in patches on faces. Distances are taken
in units of it (Mahalanobis), so that numbers of a token that depend on something else count little.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from qpriv.datasets.sample import Box

from ...token_grid import TokenGrid
from ..inverter import to_patches
from .matching import likeliest
from .portraits import Portraits, Tones
from .reading import Crossed, Moments, Reading, chosen_penalty, counted, gathered


@dataclass(frozen=True)
class TokenMetric:
    """A linear model of tokens.

    Args:
        weight: From pixels to a token in units of its noise, ``[3 * size**2, d]``.
        bias: Of each cell, ``[N, d]``.
        whiten: From a token to units of its noise, ``[d, d]``.
        size: Side of a patch in pixels.
    """

    weight: Tensor
    bias: Tensor
    whiten: Tensor
    size: int

    @classmethod
    def fit(cls, known: Sequence[Crossed], size: int) -> "TokenMetric":
        """Fit it on scenes of the attacker's own; see `PixelReader.fit`."""
        tokens, pixels, face, held = gathered(known, size)
        present = torch.cat([own.tokens.present for own in known])
        cells = present.nonzero()[:, 1]
        # where a patch lies is told by its token, whatever it shows
        rows = torch.zeros(present.shape[1], tokens.shape[1]).index_add_(0, cells, tokens)
        count = present.sum(dim=0)[:, None]
        usual = torch.where(count > 0, rows / count.clamp(min=1), tokens.mean(dim=0))
        left = tokens - usual[cells]
        penalty, noise = chosen_penalty(pixels, left, face, held)
        weight, level = Moments.of(pixels, left, counted(face)).ridge(penalty)
        whiten = _whitening(noise)
        return cls(weight @ whiten, (usual + level) @ whiten, whiten, size)

    def score(
        self,
        grid: TokenGrid,
        reading: Reading,
        boxes: Sequence[Box],
        portraits: Portraits,
        tones: Tones,
    ) -> Tensor:
        """Return minus the squared distance of the tokens on a face to each portrait, ``[P, G]``.

        Pixels of a patch outside of the box are taken as they were read.

        Args:
            grid: Tokens of the scenes.
            reading: The pixels read off them.
            boxes: The face in each.
            portraits: The gallery.
            tones: How a face of a scene differs in colour from a portrait.
        """
        scores, sized = [], cache(portraits.resized)
        for row, box in enumerate(boxes):
            left, top, right, bottom = box
            size = (bottom - top, right - left)
            faces = sized(*size)
            picture = reading.pictures[row].clone()
            canvas = picture.new_zeros(len(faces) + 1, *picture.shape)
            canvas[:-1, :, top:bottom, left:right] = faces
            picture[:, top:bottom, left:right] = 0
            canvas[-1] = picture
            inside = torch.zeros(1, 1, *picture.shape[1:])
            inside[..., top:bottom, left:right] = 1
            touched = to_patches(inside, self.size)[0].amax(dim=-1) > 0
            cells = (touched & grid.present[row]).nonzero().flatten()
            patches = to_patches(canvas, self.size)[:, cells]
            tokens = grid.tokens[row, cells] @ self.whiten - self.bias[cells]
            scores.append(self._fit(tokens - patches[-1] @ self.weight, patches[:-1], tones))
        return torch.stack(scores) if scores else torch.zeros(0, len(portraits), dtype=torch.double)

    def _fit(self, left: Tensor, patches: Tensor, tones: Tones) -> Tensor:
        """Return the scores of tokens ``[K, d]`` for portraits' patches ``[G, K, 3 * p**2]``."""
        people, cells = patches.shape[:2]
        parts = patches.reshape(people, cells, 3, self.size**2)
        weight = self.weight.reshape(3, self.size**2, -1)
        slopes = torch.einsum("gkcp,cpd->gckd", parts, weight).reshape(people, 3, -1)
        rest = left.flatten() - torch.einsum("c,gcm->gm", tones.mean, slopes)
        curvature = slopes @ slopes.transpose(1, 2)
        slope = (slopes @ rest.unsqueeze(-1)).squeeze(-1)
        return likeliest(rest.square().sum(dim=1), slope, curvature, tones)


def _whitening(noise: Tensor) -> Tensor:
    """Return the map ``[d, d]`` that makes noise ``[m, d]`` white; few rows are shrunk more."""
    rows, width = noise.shape
    covariance = noise.double().T @ noise.double() / max(1, rows)
    shrunk = covariance.diagonal().mean() * (1e-3 + width / (rows + 50 * width)) + 1e-12
    root = torch.linalg.cholesky(covariance + shrunk * torch.eye(width, dtype=covariance.dtype))
    whiten: Tensor = torch.linalg.inv(root).T.float()
    return whiten
