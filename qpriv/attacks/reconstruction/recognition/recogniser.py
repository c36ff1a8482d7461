"""`Recogniser`: all an attacker has learned, on its own scenes, to tell whose face crossed."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qpriv.datasets.sample import Box
from qpriv.models.precision import full_precision

from ...token_grid import TokenGrid
from .locating import Locator
from .matching import crossed_pixels, whole_crops
from .portraits import Portraits, Tones
from .reading import Crossed, PixelReader
from .tokens import TokenMetric


@dataclass(frozen=True)
class Recogniser:
    """The matchers, fitted.

    Args:
        portraits: The gallery.
        tones: How a face of a scene differs in colour from a portrait.
        reader: Reads pixels off tokens.
        metric: Compares tokens.
        locator: Finds faces by what was dropped.
        shape: Rows and columns of patches.
    """

    portraits: Portraits
    tones: Tones
    reader: PixelReader
    metric: TokenMetric
    locator: Locator
    shape: tuple[int, int]

    @classmethod
    @full_precision()
    def fit(
        cls, portraits: Portraits, auxiliary: Crossed, pasted: Crossed, size: int
    ) -> "Recogniser":
        """Fit it on scenes of the attacker's own.

        Args:
            portraits: The gallery.
            auxiliary: Scenes of other people.
            pasted: Scenes in which the attacker has put the gallery's people.
            size: Side of a patch in pixels.
        """
        height, width = auxiliary.scenes.pictures.shape[-2:]
        shape = (height // size, width // size)
        known = [auxiliary, pasted] if len(pasted) else [auxiliary]
        return cls(
            portraits,
            Tones.between(portraits, auxiliary.scenes),
            PixelReader.fit(known, size),
            TokenMetric.fit(known, size),
            Locator.fit(auxiliary, shape, size),
            shape,
        )

    def scores(
        self, tokens: TokenGrid, boxes: Sequence[Box], restored: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the similarity of each face to each portrait by each matcher, ``[P, G]``.

        Args:
            tokens: What crossed.
            boxes: The face in each scene.
            restored: What the attacker repainted, ``[P, 3, H, W]``; None leaves the comparison of
                whole faces out.
        """
        reading = self.reader.read(tokens, self.shape)
        found = {
            "crossed_tokens": self.metric.score(tokens, reading, boxes, self.portraits, self.tones),
            "crossed_pixels": crossed_pixels(reading, boxes, self.portraits, self.tones),
        }
        if restored is not None:
            found["whole_crop"] = whole_crops(restored, boxes, self.portraits)
        return found

    def located(self, tokens: TokenGrid) -> Tensor:
        """Return the same for an attacker who is not told the boxes, by pixels."""
        reading = self.reader.read(tokens, self.shape)
        return self.locator.score(reading, tokens.present, self.portraits, self.tones)


@full_precision()
def found_first(
    recogniser: Recogniser, queries: Crossed, restored: Tensor | None = None
) -> dict[str, float]:
    """Return how many people each matcher finds first in scenes of the attacker's own."""
    scenes = queries.scenes
    rows = [row for row, box in enumerate(scenes.faces) if box is not None]
    boxes = [box for box in scenes.faces if box is not None]
    people = [who for row in rows if (who := scenes.identities[row]) is not None]
    tokens = queries.tokens[torch.tensor(rows)]
    painted = None if restored is None else restored[rows]
    scores = recogniser.scores(tokens, boxes, painted)
    return {
        matcher: float((recogniser.portraits.ranks(own, people) == 0).double().mean())
        for matcher, own in scores.items()
    }
