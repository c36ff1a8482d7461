"""How often a face that crossed finds its person, by each matcher, beside control and floors."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qpriv.datasets.sample import Box
from qpriv.metrics.intervals import wilson_interval
from qpriv.metrics.means import IMAGE_GROUP, PERSON, RATE, mean_result
from qpriv.metrics.reconstruction import psnr
from qpriv.models.precision import full_precision
from qpriv.result import Result, Scalar

from ...observation import Scenes
from ..recognition_quantities import MATCHERS
from ..scoring import Baselines, figure
from . import floors
from .matching import whole_crops
from .portraits import Portraits
from .reading import Crossed
from .recogniser import Recogniser

FEWEST_PEOPLE = 50
"""A smaller gallery is refused a figure."""
DEFAULT = "crossed_tokens"
"""The headline's matcher where the attacker has nobody to try matchers on."""


@dataclass(frozen=True)
class _Faces:
    """The faces that are looked for: rows of the scenes, boxes, people, images, how much is visible."""

    rows: list[int]
    boxes: list[Box]
    people: list[int]
    groups: list[str]
    visible: Tensor

    @classmethod
    def of(cls, truth: Scenes, crossed: Tensor, known: Sequence[int]) -> "_Faces":
        found = [
            (row, box, who)
            for row, (box, who) in enumerate(zip(truth.faces, truth.identities, strict=True))
            if box is not None and who is not None and who in known
        ]
        shares = [
            crossed[row, box[1] : box[3], box[0] : box[2]].float().mean() for row, box, _ in found
        ]
        return cls(
            [row for row, _, _ in found],
            [box for _, box, _ in found],
            [who for _, _, who in found],
            [truth.groups[row] for row, _, _ in found],
            torch.tensor(shares),
        )


@full_precision()
def recognition_report(
    recogniser: Recogniser,
    seen: Crossed,
    restored: Tensor,
    crossed: Tensor,
    rates: Mapping[str, float],
    warped: Recogniser | None = None,
) -> list[Result]:
    """Return how often each matcher finds a face's person first, and the headline's details.

    ``reid_top1`` and ``reid_top5`` are of the matcher that finds most *auxiliary* people, named
    in ``attack``; ``reid_top1_<matcher>`` of each; ``reid_top1_box_unknown`` is not told where
    the face is. By share of the face's pixels that crossed: ``_gone`` (none), ``_glimpsed``
    (under a tenth), ``_visible``. ``reid_top1_by_person`` is the headline with an interval over
    people, ``reid_top1_warped`` that of a gallery of other photographs, ``reid_top1_control`` that
    of another person's transcript.

    Args:
        recogniser: The attacker.
        seen: What crossed of the private scenes, and their truth.
        restored: What the attacker repainted, ``[n, 3, H, W]``.
        crossed: Pixels in patches that truly crossed, ``[n, H, W]`` bool.
        rates: How often each matcher finds auxiliary people first; see `found_first`.
        warped: The same attacker with a gallery of other photographs.
    """
    faces = _Faces.of(seen.scenes, crossed, recogniser.portraits.people)
    if len(recogniser.portraits) < FEWEST_PEOPLE or not faces.rows:
        return _refused(len(recogniser.portraits), len(faces.rows))
    best = max(rates, key=lambda matcher: rates[matcher]) if rates else DEFAULT
    tokens = seen.tokens[torch.tensor(faces.rows)]
    painted = restored[faces.rows]
    scores = recogniser.scores(tokens, faces.boxes, painted)
    report = _Report(recogniser.portraits, faces, best, rates)
    results = report.headline(scores[best])
    results += [report.rate(f"reid_top1_{m}", scores[m], matcher=m) for m in MATCHERS]
    located = recogniser.located(tokens)
    results.append(report.rate("reid_top1_box_unknown", located, matcher="box_unknown"))
    other = _of_another(faces.people)
    swapped = recogniser.scores(tokens[other], faces.boxes, painted[other])[best]
    others = torch.full_like(faces.visible, len(set(faces.people)) > 1, dtype=torch.bool)
    results.append(report.rate("reid_top1_control", swapped, others))
    if warped is not None:
        again = warped.scores(tokens, faces.boxes, painted)[best]
        results.append(report.rate("reid_top1_warped", again))
    return results


@full_precision()
def whole_crop_report(portraits: Portraits, truth: Scenes, restored: Tensor) -> list[Result]:
    """Return the figures of the one matcher that works where tokens have no place: merged ones.

    Nothing is said by what of a face is visible: a merged token may hold some of any patch.
    Arguments as of `recognition_report`.
    """
    nowhere = torch.zeros_like(truth.sensitive)
    faces = _Faces.of(truth, nowhere, portraits.people)
    if len(portraits) < FEWEST_PEOPLE or not faces.rows:
        return _refused(len(portraits), len(faces.rows))
    report = _Report(portraits, faces, "whole_crop", {})
    scores = whole_crops(restored[faces.rows], faces.boxes, portraits)
    return [*report.overall(scores), report.rate("reid_top1_whole_crop", scores)]


@dataclass(frozen=True)
class _Report:
    """Makes results of scores of the same faces."""

    portraits: Portraits
    faces: _Faces
    best: str
    rates: Mapping[str, float]

    def headline(self, scores: Tensor) -> list[Result]:
        """Return the figures of the headline's matcher."""
        visible = self.faces.visible
        parts = {
            "_gone": visible == 0,
            "_glimpsed": (visible > 0) & (visible < 0.1),
            "_visible": visible >= 0.1,
        }
        found = [self.rate(f"reid_top1{end}", scores, part) for end, part in parts.items()]
        found.append(self.rate("reid_top5_gone", scores, parts["_gone"], k=5))
        return [*self.overall(scores), *found]

    def overall(self, scores: Tensor) -> list[Result]:
        """Return the figures of all faces together."""
        found = [self.rate(f"reid_top{k}", scores, k=k) for k in (1, 5)]
        return [*found, self._by_person(scores)]

    def rate(
        self,
        name: str,
        scores: Tensor,
        part: Tensor | None = None,
        *,
        k: int = 1,
        matcher: str = "",
    ) -> Result:
        """Return the share of faces, or of a part of them, whose person is among the first k."""
        hits = self._hits(scores, k)
        hits = hits if part is None else hits[part]
        if not len(hits):
            note = "no such face"
            return Result(name=name, value=None, n=0, status="not applicable", note=note)
        interval = wilson_interval(int(hits.sum()), len(hits))
        return Result(
            name=name,
            value=float(hits.mean()),
            n=len(hits),
            ci=interval,
            attack=self._facts(k, matcher or self.best),
        )

    def _by_person(self, scores: Tensor) -> Result:
        hits, faces = self._hits(scores, 1), self.faces
        units: dict[str, Sequence[Hashable]] = {PERSON: faces.people, IMAGE_GROUP: faces.groups}
        found = mean_result("reid_top1_by_person", hits.numpy(), units, bounds=RATE)
        return replace(found, n=len(set(faces.people)), attack=self._facts(1, self.best))

    def _hits(self, scores: Tensor, k: int) -> Tensor:
        return (self.portraits.ranks(scores, self.faces.people) < k).double()

    def _facts(self, k: int, matcher: str) -> dict[str, Scalar]:
        size = len(self.portraits)
        told = {f"auxiliary_top1_{name}": rate for name, rate in self.rates.items()}
        return {"chance": min(1.0, k / size), "gallery": size, "matcher": matcher, **told}


@full_precision()
def floors_by_knowledge(
    recogniser: Recogniser, seen: Crossed, auxiliary: Scenes, baselines: Baselines
) -> list[Result]:
    """Return what each knowledge paints of a face without an inverter, PSNR in the face box.

    ``floor_located_mean_face`` knows the mask alone, ``floor_eigenfaces`` the box and the pixels
    that crossed, ``floor_gallery`` these and the gallery; ``floor_mean_face`` of
    `reconstruction_report` knows the box. Eigenfaces and gallery stand above attackers who are
    told neither box nor gallery.
    """
    truth = seen.scenes
    if baselines.mean_face is None:
        return []
    reading = recogniser.reader.read(seen.tokens, recogniser.shape)
    guessed: list[Box | None] = list(recogniser.locator.guess(seen.tokens.present))
    pictures = {
        "floor_located_mean_face": floors.mean_face_at(baselines, truth, guessed),
        "floor_eigenfaces": floors.eigenfaces(baselines, truth, reading, auxiliary),
        "floor_gallery": floors.gallery_posterior(
            baselines, truth, reading, recogniser.portraits, recogniser.tones
        ),
    }
    return [
        figure(name, psnr(picture, truth.pictures, truth.sensitive), truth, "dB")
        for name, picture in pictures.items()
    ]


def _refused(people: int, faces: int) -> list[Result]:
    note = f"gallery of {people} people, {faces} faces of them"
    empty = Result(name="", value=None, n=0, status="not applicable", note=note)
    return [replace(empty, name=name) for name in ("reid_top1", "reid_top5")]


def _of_another(people: Sequence[int]) -> Tensor:
    """Return for each face the next one that is of another person; its own where there is none."""
    count = len(people)
    following = [
        next(
            ((row + step) % count for step in range(1, count)
             if people[(row + step) % count] != people[row]),
            row,
        )
        for row in range(count)
    ]  # fmt: skip
    return torch.tensor(following)
