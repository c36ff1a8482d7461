"""What the embedded model can do, and what leaks from it, on scenes with unseen people."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import fold, interpolate
from transformers import LlavaForConditionalGeneration

from qpriv.datasets import faces
from qpriv.datasets.face_scenes import scenes
from qpriv.datasets.sample import Box
from qpriv.datasets.scene_questions import Question
from qpriv.datasets.scenes import SIDE
from qpriv.metrics.intervals import mean_interval, wilson_interval
from qpriv.metrics.reconstruction import psnr
from qpriv.metrics.reidentification import Reidentification, correlation, face_crops, ranks

from .llava_stage import draw_kept
from .packing import ANSWER_LENGTH
from .reading import Reader, tower_features
from .scene_tensors import PATCH, SceneTensors, patches

CUT = 4
"""Decoder layer at whose input the read-out is measured: half of the depth."""

KEPT = (64, 48, 32, 16)
"""Numbers of randomly kept image tokens at which accuracy is measured."""

UNSEEN = ("val", "members")
"""Splits whose people are in no auxiliary scene."""


@dataclass(frozen=True)
class Figure:
    """A figure of the hold-out report: name, value, 95 % interval and number of items."""

    name: str
    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        """Return a line of the report."""
        return f"{self.name:36} {self.value:7.3f} [{self.low:.3f}, {self.high:.3f}] n={self.n}"


def measure(folder: Path, scenes_per_split: int = 300, seed: int = 0) -> list[Figure]:
    """Return accuracy by question type beside its blind prior, and how well faces are read off.

    Args:
        folder: A LLaVA folder.
        scenes_per_split: Scenes of ``val`` to ask about; as many of ``val`` and of ``members``
            are reconstructed, and five times as many auxiliary ones fit the read-out.
        seed: Seed of the scenes.
    """
    model = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    known = SceneTensors.draw("train", 5 * scenes_per_split, seed)
    held_out = SceneTensors.draw("val", scenes_per_split, seed)
    return [
        *_blind(known, held_out),
        *(figure for kept in KEPT for figure in _accuracy(model, held_out, kept)),
        *_read_faces(model, known, scenes_per_split, seed),
    ]


def _blind(known: SceneTensors, held_out: SceneTensors) -> list[Figure]:
    """Score the most frequent answer to each question's words, without looking."""
    answers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for question in (q for asked in known.questions for q in asked):
        answers[question.text][question.answer] += 1
    asked = [question for some in held_out.questions for question in some]
    guesses = [answers[q.text].most_common(1)[0][0] if answers[q.text] else "" for q in asked]
    right = [guess == q.answer for guess, q in zip(guesses, asked, strict=True)]
    return _by_type("blind prior", asked, right)


@torch.no_grad()
def _accuracy(
    model: LlavaForConditionalGeneration, held_out: SceneTensors, kept: int
) -> list[Figure]:
    """Score greedy answers with so many random image tokens left."""
    reader, rng, right = Reader(), np.random.default_rng(1), []
    features = tower_features(model, held_out.pixels).float()
    for rows in _batches(len(held_out)):
        asked_about = [held_out.questions[row] for row in rows]
        segments = [[reader.segment(question) for question in some] for some in asked_about]
        seen = features[rows[:, None], draw_kept(rng, len(rows), kept)]
        reading = reader.read(model, seen, segments)
        hits = reading.logits.argmax(-1) == reading.targets
        right += hits.view(-1, ANSWER_LENGTH).all(1).tolist()
    asked = [question for some in held_out.questions for question in some]
    return _by_type(f"accuracy, {kept} tokens", asked, right)


def _by_type(name: str, asked: list[Question], right: list[bool]) -> list[Figure]:
    kinds: dict[str, list[bool]] = {"all": right}
    for question, is_right in zip(asked, right, strict=True):
        kinds.setdefault(question.kind, []).append(is_right)
    return [_share(f"{name}, {kind}", rights) for kind, rights in kinds.items()]


def _share(name: str, hits: list[bool]) -> Figure:
    low, high = wilson_interval(sum(hits), len(hits))
    return Figure(name, sum(hits) / len(hits), low, high, len(hits))


def _mean(name: str, values: Tensor, people: Tensor) -> Figure:
    """Return the mean over pictures; the interval draws people, who are fewer than pictures."""
    low, high = mean_interval(values.numpy(), people.tolist()) or (float("nan"),) * 2
    return Figure(name, float(values.mean()), low, high, len(values))


def _read_faces(
    model: LlavaForConditionalGeneration, known: SceneTensors, number: int, seed: int
) -> list[Figure]:
    """Read pixels off the activations at the cut by ridge regression, and recognise people."""
    drawn = [scene for split in UNSEEN for _, scene, _ in scenes(split, number, seed)]
    private = [scene for scene in drawn if scene.face]
    pixels = torch.from_numpy(np.stack([scene.pixels for scene in private])).permute(0, 3, 1, 2)
    weights = _ridge(
        _states(model, known.pixels).flatten(0, 1), patches(known.pixels).flatten(0, 1)
    )
    restored = _assemble(_with_one(_states(model, pixels)) @ weights).clamp(0, 1).double()
    truth, boxes = pixels.double() / 255, [scene.face for scene in private if scene.face]
    people = torch.tensor([scene.identity for scene in private])
    region, guess = _mean_faces(boxes, seed)
    similar = correlation(face_crops(restored, boxes), _gallery())
    found = Reidentification(ranks(similar, people, torch.tensor(faces.UNSEEN)), len(faces.UNSEEN))
    return [
        _mean(f"PSNR of faces, cut {CUT}, dB", psnr(restored, truth, region), people),
        _mean("PSNR of the mean face, dB", psnr(guess, truth, region), people),
        *(
            _share(f"re-identified of {len(faces.UNSEEN)}, top {k}", found.hits(k).bool().tolist())
            for k in (1, 5)
        ),
    ]


def _gallery() -> Tensor:
    """Return the stored faces at the size `face_crops` gives, ``[60, 3, s, s]``."""
    pictures = torch.from_numpy(faces.gallery()).double()[:, None].expand(-1, 3, -1, -1) / 255
    return face_crops(pictures, [(0, 0, faces.FACE_SIZE, faces.FACE_SIZE)] * len(pictures))


def _mean_faces(boxes: Sequence[Box], seed: int) -> tuple[Tensor, Tensor]:
    """Return where the faces are, ``[n, 64, 64]``, and the average auxiliary face put there."""
    rng = np.random.default_rng(seed)
    drawn = np.stack([faces.face(rng, faces.AUXILIARY, 32)[0] for _ in range(400)])
    average = torch.from_numpy(drawn).double().mean(0).permute(2, 0, 1)[None] / 255
    region = torch.zeros(len(boxes), SIDE, SIDE, dtype=torch.bool)
    guess = torch.zeros(len(boxes), 3, SIDE, SIDE, dtype=torch.double)
    for row, (left, top, right, bottom) in enumerate(boxes):
        region[row, top:bottom, left:right] = True
        resized = interpolate(average, (bottom - top, right - left), mode="bilinear")
        guess[row, :, top:bottom, left:right] = resized[0]
    return region, guess


@torch.no_grad()
def _states(model: LlavaForConditionalGeneration, pixels: Tensor) -> Tensor:
    """Return the image tokens at the cut, ``[n, 64, 192]``; no question reaches them."""
    reader, features = Reader(), tower_features(model, pixels).float()
    chunks = [
        reader.read(model, features[rows], [[]] * len(rows)).states[CUT]
        for rows in _batches(len(pixels))
    ]
    return torch.cat(chunks)


def _batches(count: int) -> list[NDArray[np.int64]]:
    return np.array_split(np.arange(count), max(1, count // 50))


def _with_one(values: Tensor) -> Tensor:
    return torch.cat([values, torch.ones_like(values[..., :1])], dim=-1)


def _ridge(inputs: Tensor, targets: Tensor, penalty: float = 1e-4) -> Tensor:
    design = _with_one(inputs).double()
    gram = design.T @ design
    gram += penalty * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    weights: Tensor = torch.linalg.solve(gram, design.T @ targets.double())
    return weights.float()


def _assemble(cells: Tensor) -> Tensor:
    """Return patches ``[n, 64, 192]`` as pictures ``[n, 3, 64, 64]``."""
    return fold(cells.transpose(1, 2), SIDE, PATCH, stride=PATCH)
