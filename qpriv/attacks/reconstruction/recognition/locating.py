"""`Locator`: where is the face? What a policy dropped tells it to whoever sees what it kept.

A policy that drops sensitive patches leaves a hole in the shape of the face. How likely each patch
is kept, given how much of it a face covers and how many patches were kept, is learned on the
attacker's own scenes; boxes of all sizes seen there are tried at all places. What was read of the
patches around the hole then tells between the boxes, and says who it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv2d, softplus

from qpriv.datasets.sample import Box

from .matching import crossed_pixels
from .portraits import Portraits, Tones, fitted
from .reading import Crossed, Reading

BINS = (0.0, 0.25, 0.5, 0.75, 0.999)
"""Ends of the classes of how much of a patch a box covers; the first class is none of it."""
STRIDE = 2
"""Distance in pixels of the boxes that are tried."""
TRIED = 32
"""Boxes whose pixels are compared, the likeliest ones by the mask."""
TEMPERATURE = 0.1
"""How much one pixel's evidence counts beside the mask's: errors within a patch go together."""


def coverage(boxes: Tensor, shape: tuple[int, int], size: int) -> Tensor:
    """Return which share of each patch each box covers, ``[C, N]``.

    Args:
        boxes: Left, top, right, bottom, ``[C, 4]``.
        shape: Rows and columns of patches.
        size: Side of a patch in pixels.
    """
    left, top, right, bottom = boxes.float().unbind(dim=1)
    tall = _overlap(top, bottom, shape[0], size)
    wide = _overlap(left, right, shape[1], size)
    return (tall[:, :, None] * wide[:, None, :]).flatten(1)


def _overlap(start: Tensor, stop: Tensor, count: int, size: int) -> Tensor:
    edges = torch.arange(count) * float(size)
    upper = torch.minimum(stop[:, None], edges + size)
    return (upper - torch.maximum(start[:, None], edges)).clamp(min=0) / size


@dataclass(frozen=True)
class Locator:
    """Which boxes a face may have, and how likely each is by what was dropped.

    Args:
        sides: Width and height of the boxes that are tried.
        boxes: Each of them at each place, ``[C, 4]``.
        log_odds: What a class of coverage adds to the log-odds of being kept, ``[classes]``.
        classes: Class of each patch under each box, ``[C, N]``.
        background: Mean of a scene's pixels, ``[3, H, W]``.
        spread: Their variance, ``[3, H, W]``.
    """

    sides: tuple[tuple[int, int], ...]
    boxes: Tensor
    log_odds: Tensor
    classes: Tensor
    background: Tensor
    spread: Tensor

    @classmethod
    def fit(cls, known: Crossed, shape: tuple[int, int], size: int) -> "Locator":
        """Learn on scenes of the attacker's own.

        Args:
            known: The scenes, with the boxes of their faces.
            shape: Rows and columns of patches.
            size: Side of a patch in pixels.
        """
        rows = [row for row, box in enumerate(known.scenes.faces) if box is not None]
        faces = torch.tensor([box for box in known.scenes.faces if box is not None])
        kept = known.tokens.present[rows].float()
        classes = _classes(coverage(faces, shape, size))
        log_odds = torch.zeros(len(BINS) + 1)
        share = kept.mean(dim=1, keepdim=True).expand_as(kept)
        for number in range(len(log_odds)):
            own = classes == number
            if own.any():  # two patches of doubt, so that no class is certain
                count, expected = float(own.sum()), float(share[own].mean())
                rate = (float(kept[own].sum()) + 2 * expected) / (count + 2)
                log_odds[number] = _logit(rate) - _logit(expected)
        pictures = known.scenes.pictures
        sides = _sides(faces)
        boxes = _all_boxes(sides, pictures.shape[-2:])
        return cls(
            sides,
            boxes,
            log_odds,
            _classes(coverage(boxes, shape, size)),
            pictures.mean(dim=0),
            pictures.var(dim=0) + 1e-4,
        )

    def log_likelihood(self, present: Tensor) -> Tensor:
        """Return how likely a mask is under each box, up to a constant.

        Args:
            present: Which patches crossed, ``[n, N]``.

        Returns:
            ``[n, C]``.
        """
        kept = present.float()
        usual = _logit_of(kept.mean(dim=1).clamp(0.02, 0.98))
        added = self.log_odds[self.classes]
        parts = []
        for row, level in zip(kept, usual, strict=True):
            logits = added + level
            parts.append((row * logits - softplus(logits)).sum(dim=1))
        return torch.stack(parts) if parts else kept.new_zeros(0, len(self.boxes))

    def guess(self, present: Tensor) -> list[Box]:
        """Return the likeliest box by the mask alone for each scene."""
        best = self.log_likelihood(present).argmax(dim=1)
        return [_as_box(self.boxes[number]) for number in best]

    def score(
        self, reading: Reading, present: Tensor, portraits: Portraits, tones: Tones
    ) -> Tensor:
        """Return how likely each portrait is, summed over boxes, ``[n, G]``.

        A box's pixels are held against an average scene, so that boxes over more or fewer pixels
        that crossed can be compared. The boxes that mask and mean portrait find likeliest are tried
        with every portrait.

        Args:
            reading: What was read of the scenes.
            present: Which patches crossed, ``[n, N]``.
            portraits: The gallery.
            tones: How a face of a scene differs in colour from a portrait.
        """
        likely = self.log_likelihood(present)
        face = portraits.resized(24, 24).mean(dim=0) * tones.mean[:, None, None]
        scores = []
        for row, mask in enumerate(likely):
            own = Reading(reading.pictures[row], reading.variance, reading.crossed[row])
            plain, mean_face = self._evidence(own, face)
            _, best = (mask + TEMPERATURE / 2 * (mean_face - plain)).topk(min(TRIED, len(mask)))
            explained = self._explained(own, best, portraits, tones)
            evidence = mask[best, None] + TEMPERATURE / 2 * (explained - plain[best, None])
            scores.append(torch.logsumexp(evidence, dim=0))
        return torch.stack(scores) if scores else torch.zeros(0, len(portraits))

    def _explained(
        self, reading: Reading, best: Tensor, portraits: Portraits, tones: Tones
    ) -> Tensor:
        """Return the scores of portraits in some boxes of one scene, ``[boxes, G]``."""
        repeated = Reading(
            reading.pictures.expand(len(best), -1, -1, -1),
            reading.variance,
            reading.crossed.expand(len(best), -1, -1),
        )
        boxes = [_as_box(self.boxes[number]) for number in best]
        return crossed_pixels(repeated, boxes, portraits, tones)

    def _evidence(self, reading: Reading, face: Tensor) -> tuple[Tensor, Tensor]:
        """Return twice the log-likelihood of each box's pixels in one scene, ``[C]`` each.

        The first is that of an average scene, the second that of a face ``[3, h, w]`` there; what
        they share is left out. Sums over boxes are correlations.
        """
        trust = reading.crossed / reading.variance
        spread = self.spread + reading.variance
        error = (reading.pictures - self.background).square() / spread
        plain = (reading.crossed * (error + (spread / reading.variance).log())).sum(dim=0)
        weighted = trust * reading.pictures
        square = (weighted * reading.pictures).sum(dim=0)
        found = []
        for width, height in self.sides:
            kernel = fitted(face, height, width)
            ones = torch.ones(1, 1, height, width)
            apart = conv2d(trust[None], kernel.square(), stride=STRIDE)
            apart = apart - 2 * conv2d(weighted[None], kernel, stride=STRIDE)
            sums = conv2d(torch.stack([plain, square])[:, None], ones, stride=STRIDE)
            found.append((sums[0].flatten(), (apart[0] + sums[1]).flatten()))
        plains, faces = zip(*found, strict=True)
        return -torch.cat(plains), -torch.cat(faces)


def _classes(covered: Tensor) -> Tensor:
    return torch.bucketize(covered, torch.tensor(BINS))


def _sides(faces: Tensor) -> tuple[tuple[int, int], ...]:
    """Return width and height of a few of some boxes ``[F, 4]``, from small to large."""
    sides = torch.stack([faces[:, 2] - faces[:, 0], faces[:, 3] - faces[:, 1]], dim=1)
    order = sides.prod(dim=1).argsort()
    few = sides[order[torch.linspace(0, len(order) - 1, 5).round().long()]]
    return tuple(sorted({(int(width), int(height)) for width, height in few}))


def _all_boxes(sides: Sequence[tuple[int, int]], size: Sequence[int]) -> Tensor:
    """Return boxes of some sides at all places of a picture, ``[C, 4]``."""
    found = [
        (left, top, left + width, top + height)
        for width, height in sides
        for top in range(0, size[0] - height + 1, STRIDE)
        for left in range(0, size[1] - width + 1, STRIDE)
    ]
    return torch.tensor(found)


def _as_box(numbers: Tensor) -> Box:
    left, top, right, bottom = (int(number) for number in numbers)
    return left, top, right, bottom


def _logit(share: float) -> float:
    share = min(max(share, 1e-3), 1 - 1e-3)
    return math.log(share / (1 - share))


def _logit_of(shares: Tensor) -> Tensor:
    return (shares / (1 - shares)).log()
