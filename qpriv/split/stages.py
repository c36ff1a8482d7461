"""Stages: what the two ends of a cut do to tensors before they cross, and after they have.

A stage computes on the real tokens of a batch one after another, ``[sum T_i, d]``, as they cross:
there is no padding to mind, and hooks in one process and parties on machines of their own hand it
the very same rows.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from qpriv.models.llava.forward_pass import Mode
from qpriv.models.llava.prepared import PreparedInputs

from .layout import TokenLayout
from .transcript import Direction, Span

Part = Literal["encode", "decode", "encode_gradient", "decode_gradient"]
"""Which stage of a cut: the sender's or the receiver's of activations, then of gradients."""

_PARTS: tuple[Part, ...] = get_args(Part)
_MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Site:
    """Where a stage sits.

    Args:
        cut: The decoder layer before which tensors cross.
        direction: Which way the activations go; gradients go the other way.
        width: Width ``d`` of the decoder.
    """

    cut: int
    direction: Direction
    width: int


@dataclass(frozen=True)
class RandomKey:
    """What random numbers in training depend on: the same key draws the same numbers.

    Args:
        seed: Seed of the run, or of an attack.
        step: Optimiser step of the run.
        micro_batch: Part of the step's batch.
        client: The client that sends.
    """

    seed: int = 0
    step: int = 0
    micro_batch: int = 0
    client: int = 0

    def micro(self, number: int) -> "RandomKey":
        """Return the key of a later part of the batch."""
        return replace(self, micro_batch=self.micro_batch + number)


@dataclass(frozen=True)
class StageContext:
    """What a stage may know of the rows in its hands.

    The client knows the samples; a server is told lengths and positions, and nothing else is in
    the context of the stages it runs.

    Args:
        site: Where the stage sits.
        layout: How many tokens each sample has, ``[B]``, and their positions if these have gaps.
        spans: For each sample where its image tokens lie; empty at a server.
        keys: Key of each sample; empty at a server.
        groups: Image (or patient) of each sample; empty at a server.
        pixels: The client's own pictures, ``[B, 3, H, W]`` as CLIP is given them; None at a
            server, and where rows are beams of samples.
        patches: Which patch of its picture each image token of a sample stands for, ``[k_i]``,
            -1 for a merged one; empty where ``pixels`` is None, and where activations come down.
        mode: What the pass is for.
        token: 0 for whole sequences, n for the n-th single token of a generation.
        key: What random numbers depend on in training.
        part: Which stage it is.
    """

    site: Site
    layout: TokenLayout
    spans: tuple[Span, ...] = ()
    keys: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    pixels: Tensor | None = None
    patches: tuple[Tensor, ...] = ()
    mode: Mode = "train"
    token: int = 0
    key: RandomKey = field(default_factory=RandomKey)
    part: Part = "encode"

    @property
    def lengths(self) -> list[int]:
        """Return the number of real tokens of each sample."""
        counts: list[int] = self.layout.lengths.tolist()
        return counts

    @property
    def is_image(self) -> Tensor:
        """Return which rows are tokens of an image, ``[sum T_i]`` bool.

        Raises:
            ValueError: If nobody has told, as at a server.
        """
        if not self.spans:
            raise ValueError("where the image lies is not known here")
        places = [torch.arange(length) for length in self.lengths]
        inside = [
            (row >= start) & (row < stop)
            for row, (start, stop) in zip(places, self.spans, strict=True)
        ]
        return torch.cat(inside).to(self.layout.lengths.device)

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return the rows of each sample, ``[T_i, ...]``."""
        return torch.split(rows, self.lengths)

    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """Return a generator of this stage and pass alone, keyed by (seed, step, micro-batch).

        In evaluation and generation there are no steps: it depends on the seed alone, and so is
        the same for every batch. `normal` draws by sample.
        """
        return self._seeded(device, self._numbers())

    def normal(self, rows: Tensor) -> Tensor:
        """Return standard normal numbers in the shape and type of some rows, ``[sum T_i, ...]``.

        In training they are keyed by (seed, step, micro-batch); in evaluation and generation by
        seed and sample, so that an answer does not depend on what else is in the batch.
        """
        if self.mode == "train" or not self.keys:
            return _drawn(rows, self.generator(rows.device))
        numbers = self._numbers()
        return torch.cat(
            [
                _drawn(own, self._seeded(rows.device, (*numbers, *_words(key))))
                for own, key in zip(self.split(rows), self.keys, strict=True)
            ]
        )

    def about(self, inputs: PreparedInputs) -> "StageContext":
        """Return the context with what the client knows of its samples.

        Args:
            inputs: What passes; each sample has one row, or one for each beam.
        """
        beams = len(self.layout.lengths) // len(inputs)
        samples = [sample for sample in inputs.batch.samples for _ in range(beams)]
        known = replace(
            self,
            keys=tuple(sample.key for sample in samples),
            groups=tuple(f"{sample.dataset}/{sample.group_id}" for sample in samples),
        )
        if beams > 1 or self.token:
            return known
        # behind the first cut some may have been withdrawn: nobody knows there which are left
        first = self.site.direction is Direction.UP
        patches = inputs.patches(self.site.cut) if first else ()
        return replace(known, pixels=inputs.batch.pixel_values, patches=patches)

    def of(self, part: Part) -> "StageContext":
        """Return the context of a stage: with the samples where the client runs it."""
        sends = part in ("encode", "decode_gradient")
        if sends == (self.site.direction is Direction.UP):
            return replace(self, part=part)
        return replace(self, part=part, spans=(), keys=(), groups=(), pixels=None, patches=())

    def left(self, places: Tensor) -> "StageContext":
        """Return the context of some of the rows.

        Args:
            places: Which rows they are, ``[n]`` ascending.

        Raises:
            ValueError: If the places do not ascend, or a sample is left without its last token.
        """
        ends = list(accumulate(self.lengths))
        starts = [0, *ends[:-1]]
        chosen = torch.zeros(ends[-1], dtype=torch.bool, device=places.device)
        chosen[places] = True
        if not torch.equal(chosen.nonzero().squeeze(1), places):
            raise ValueError("the places of remaining rows do not ascend")
        if not bool(chosen[[end - 1 for end in ends]].all()):
            raise ValueError("the last token of a sample was withdrawn: no answer can follow")
        counts = chosen.cumsum(dim=0).tolist()

        def before(place: int) -> int:
            return int(counts[place - 1]) if place else 0

        spans = tuple(
            (before(start + first) - before(start), before(start + last) - before(start))
            for start, (first, last) in zip(starts, self.spans, strict=False)
        )
        patches = tuple(
            own[chosen[start + first : start + last].to(own.device)]
            for own, start, (first, last) in zip(self.patches, starts, self.spans, strict=False)
        )
        lengths = [before(end) - before(start) for start, end in zip(starts, ends, strict=True)]
        positions = self.layout.positions
        layout = TokenLayout(
            torch.tensor(lengths, device=self.layout.lengths.device),
            self.layout.side,
            None if positions is None else positions[places],
        )
        return replace(self, layout=layout, spans=spans, patches=patches)

    def _numbers(self) -> tuple[int, ...]:
        key = self.key
        trained = (key.step, key.micro_batch, key.client) if self.mode == "train" else ()
        kind = (_MODES.index(self.mode), _PARTS.index(self.part), self.site.cut, self.token)
        return (key.seed % 2**63, *kind, *trained)

    @staticmethod
    def _seeded(device: torch.device | str, numbers: Sequence[int]) -> torch.Generator:
        state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
        return torch.Generator(device).manual_seed(int(state[0] >> np.uint64(1)))


@dataclass(frozen=True)
class Remaining:
    """What crosses where the sender withdraws rows: fewer rows, and which ones they are.

    Args:
        rows: What crosses, ``[m, d]``.
        places: Which of the rows that came in each of them stands for, ``[m]`` ascending. The
            last token of every sample is among them: an answer goes on from it.
    """

    rows: Tensor
    places: Tensor


class Stage(Protocol):
    """Changes rows ``[sum T_i, d]`` on their way; an encoder may also withdraw some of them."""

    def __call__(self, rows: Tensor, context: StageContext, /) -> Tensor | Remaining:
        """Return what goes on."""
        ...


@dataclass(frozen=True)
class Stages:
    """What the two ends of a cut do, each None where it does nothing.

    Args:
        encode: Applied to activations by their sender.
        decode: Applied to activations by their receiver.
        encode_gradient: Applied to gradients by their sender, the receiver of the activations.
        decode_gradient: Applied to gradients by their receiver.
    """

    encode: Stage | None = None
    decode: Stage | None = None
    encode_gradient: Stage | None = None
    decode_gradient: Stage | None = None

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return any(getattr(self, each.name) is not None for each in fields(self))


def places_by_sample(places: Tensor, before: Tensor, after: StageContext) -> list[Tensor]:
    """Return for each sample which of its tokens are left.

    Args:
        places: Which of all rows are left, ``[m]``.
        before: Tokens of each sample before, ``[B]``.
        after: What is known of those that are left.
    """
    starts = (before.cumsum(dim=0) - before).tolist()
    rows = torch.split(places, after.lengths)
    return [row - start for row, start in zip(rows, starts, strict=True)]


def _drawn(rows: Tensor, generator: torch.Generator) -> Tensor:
    # in single precision whatever the rows' type: the same numbers, rounded
    drawn = torch.randn(rows.shape, generator=generator, device=rows.device, dtype=torch.float32)
    return drawn.to(rows.dtype)


def _words(text: str) -> tuple[int, ...]:
    digest = hashlib.sha256(text.encode()).digest()
    return tuple(int.from_bytes(digest[start : start + 4], "big") for start in range(0, 16, 4))
