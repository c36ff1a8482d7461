"""`Observation` and `Scenes`: what an attack sees, kept apart from the ground truth."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor
from torch.nn.functional import interpolate

from qpriv.datasets.sample import ArrayImage, Box, ImageSource, VQASample
from qpriv.metrics.reconstruction import Regions, patch_pixels
from qpriv.models.llava.preprocessing import Preprocessor
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import Encode
from qpriv.pruning.policy import PruningPolicy
from qpriv.split import Channel, RandomKey, Transcript, stopped

from .token_grid import TokenGrid, to_grid

T = TypeVar("T")


@dataclass(frozen=True)
class Observation:
    """What an attacker observes at a cut for some scenes.

    Args:
        transcript: Everything that crossed.
        cut: The attacked cut.
        kept: Indices of the patches that crossed as separate tokens, ``[k_i]``. The metric knows
            them, and an attacker only if its threat model says so.
        grid: Rows and columns of patches.
    """

    transcript: Transcript
    cut: int
    kept: tuple[Tensor, ...]
    grid: tuple[int, int]

    def tokens(self, *, knows_positions: bool) -> TokenGrid:
        """Return the image tokens on the grid, at their patches if positions are known.

        Raises:
            ConfigError: If positions are known and a token merges several patches.
        """
        places = self.kept if knows_positions else None
        return to_grid(self.transcript.image_rows(self.cut), places, self.grid[0] * self.grid[1])


@dataclass(frozen=True)
class Scenes:
    """The ground truth of some scenes, in the crop that the encoders see.

    Args:
        pictures: ``[n, 3, H, W]`` in [0, 1].
        sensitive: Pixels in a sensitive box, ``[n, H, W]`` bool.
        faces: First sensitive box of each picture, in pixels of ``pictures``; None without a box.
        identities: Identity of the person in the box; None if unknown.
        groups: Image (or patient) of each picture.
    """

    pictures: Tensor
    sensitive: Tensor
    faces: tuple[Box | None, ...]
    identities: tuple[int | None, ...]
    groups: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of scenes."""
        return len(self.pictures)

    def __getitem__(self, rows: slice) -> Self:
        """Return some of the scenes."""
        return type(self)(
            self.pictures[rows],
            self.sensitive[rows],
            self.faces[rows],
            self.identities[rows],
            self.groups[rows],
        )

    def regions(self, kept: Sequence[Tensor], grid: tuple[int, int]) -> Regions:
        """Return which pixels are sensitive, and which lie in a patch that crossed."""
        mask = torch.zeros(len(self), grid[0] * grid[1], dtype=torch.bool)
        for row, places in enumerate(kept):
            mask[row, places.cpu()] = True
        height, width = self.pictures.shape[-2:]
        return Regions(self.sensitive, patch_pixels(mask, grid, (height, width)))


@torch.no_grad()
def observe(
    model: VisionLanguageModel,
    policy: PruningPolicy,
    samples: Sequence[VQASample],
    channel: Channel,
    cut: int,
    *,
    encode: Encode | None = None,
    batch_size: int = 64,
    key: RandomKey | None = None,
) -> Observation:
    """Run the client's part on some samples and return what the receiver at a cut observes.

    The layers after the cut do not run. To do this with its own scenes, an attacker must hold the
    client's layers. For a victim's scenes, an attacker reads the same from the wire.

    Args:
        model: The client's model.
        policy: The client's pruning policy.
        samples: The client's samples.
        channel: The channel, with its codec and its defence.
        cut: The attacked cut.
        encode: The frozen encoders, or a cache of them.
        batch_size: Samples per pass.
        key: Key of a defence's random numbers.
    """
    kept: list[Tensor] = []
    with channel.record(model, key=key, stop=cut) as transcript:
        for rows in batches(samples, batch_size):
            batch = model.preprocessor(rows).to(model.device)
            features = (encode or model.encode)(batch, policy.needs)
            decision = policy.decide(features, rows)
            inputs = model.prepare(batch, features, decision)
            with stopped():
                model(inputs)
            (places,) = (message.places for message in transcript.select(cut)[-1:])
            own = [patches.cpu() for patches in inputs.patches(cut)]
            if places:  # a defence withdrew some of the patches
                spans = inputs.answered.at(cut).image_spans
                own = [
                    patches[row[(row >= start) & (row < stop)] - start]
                    for patches, row, (start, stop) in zip(own, places, spans, strict=True)
                ]
            kept += [patches[patches >= 0] for patches in own]
    return Observation(transcript, cut, tuple(kept), model.grid)


@contextmanager
def public_client(model: VisionLanguageModel) -> Iterator[None]:
    """Disable the victim's adapter in the body, so that the model is the public base model."""
    if isinstance(model.llava, PeftModel):
        with model.llava.disable_adapter():
            yield
    else:
        yield


def scenes(model: VisionLanguageModel, samples: Sequence[VQASample], patch_size: int = 8) -> Scenes:
    """Return the ground truth of samples, at ``patch_size`` pixels per patch side."""
    size = (model.grid[0] * patch_size, model.grid[1] * patch_size)
    parts = [
        _crops(model, [sample.image for sample in part], size) for part in batches(samples, 256)
    ]
    masks = [_box_masks(model, sample, size) for sample in samples]
    sensitive = torch.stack([mask.any(dim=0) for mask in masks])
    return Scenes(
        torch.cat(parts),
        sensitive,
        tuple(_first_box(mask) for mask in masks),
        tuple(sample.meta.get("identity") for sample in samples),
        tuple(sample.group_id for sample in samples),
    )


def box_coverage(preprocessor: Preprocessor, sample: VQASample) -> tuple[Tensor, Tensor]:
    """Return the share of each patch in any sensitive box, ``[N]``, and in each, ``[F, N]``."""
    boxes, count = sample.sensitive_boxes or (), preprocessor.num_patches
    if not boxes:
        return torch.zeros(count), torch.zeros(0, count)
    size = sample.image.load().size
    own = [preprocessor.patch_coverage([box], size) for box in boxes]
    return preprocessor.patch_coverage(boxes, size), torch.stack(own)


def one_per_image(samples: Sequence[VQASample]) -> list[VQASample]:
    """Return the first sample of every group, for attacks on images."""
    first: dict[str, VQASample] = {}
    for sample in samples:
        first.setdefault(sample.group_id, sample)
    return list(first.values())


def batches(samples: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in batches of at most ``size``."""
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


def _crops(
    model: VisionLanguageModel, images: Sequence[ImageSource], size: tuple[int, int]
) -> Tensor:
    """Return pictures in the crop the encoders see, ``[n, 3, H, W]`` in [0, 1]."""
    processor = model.preprocessor.image_processor
    pixels = processor(images=[image.load() for image in images], return_tensors="pt")
    crops = model.preprocessor.crops(pixels["pixel_values"])
    if crops.shape[-2:] != size:
        crops = interpolate(crops, size, mode="bicubic", antialias=True)
    return crops.clamp(0, 1)


def _box_masks(model: VisionLanguageModel, sample: VQASample, size: tuple[int, int]) -> Tensor:
    """Return each sensitive box as pixels of the crop, ``[boxes, H, W]`` bool.

    The box is drawn as an image and preprocessed like the sample's image, so it follows any
    resizing and cropping.
    """
    if not sample.sensitive_boxes:
        return torch.zeros(0, *size, dtype=torch.bool)
    width, height = sample.image.load().size
    drawn = []
    for left, top, right, bottom in sample.sensitive_boxes:
        plane = np.zeros((height, width, 3), dtype=np.uint8)
        plane[top:bottom, left:right] = 255
        drawn.append(ArrayImage(plane))
    return _crops(model, drawn, size).mean(dim=1) > 0.5


def _first_box(masks: Tensor) -> Box | None:
    if not len(masks) or not masks[0].any():
        return None
    rows, columns = masks[0].nonzero(as_tuple=True)
    return (int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1)
