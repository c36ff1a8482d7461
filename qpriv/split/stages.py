"""Stages: transformations of tensors before and after they cross a cut.

A stage gets the real tokens of a batch without padding, ``[sum T_i, d]``, as they cross. Hooks in
one process and parties on separate machines give it the same rows.
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
"""A stage of a cut: at the activations' sender or receiver, for activations or gradients."""

_PARTS: tuple[Part, ...] = get_args(Part)
_MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Site:
    """The location of a stage.

    Args:
        cut: The decoder layer before which tensors cross.
        direction: Direction of the activations; gradients go in the opposite direction.
        width: Width ``d`` of the decoder.
    """

    cut: int
    direction: Direction
    width: int


@dataclass(frozen=True)
class RandomKey:
    """The key of random numbers in training: equal keys draw equal numbers.

    Args:
        seed: Seed of the run, or of an attack.
        step: Optimiser step of the run.
        micro_batch: Index of the micro-batch in the step.
        client: The client that sends.
    """

    seed: int = 0
    step: int = 0
    micro_batch: int = 0
    client: int = 0

    def micro(self, number: int) -> "RandomKey":
        """Return the key of a later micro-batch of the step."""
        return replace(self, micro_batch=self.micro_batch + number)


@dataclass(frozen=True)
class StageContext:
    """What a stage may know about its rows.

    The client knows its samples. A server knows only lengths and positions, so the context of its
    stages holds nothing else.

    Args:
        site: The location of the stage.
        layout: Number of tokens of each sample, ``[B]``, and their positions if these have gaps.
        spans: Span of the image tokens of each sample; empty at a server.
        keys: Key of each sample; empty at a server.
        groups: Image (or patient) of each sample; empty at a server.
        pixels: The client's images, ``[B, 3, H, W]``, preprocessed for CLIP; None at a server, and
            if rows are beams of samples.
        patches: Patch index of each image token of a sample, ``[k_i]``, -1 for merged tokens;
            empty if ``pixels`` is None, and for activations that go down.
        mode: Mode of the pass.
        token: 0 for whole sequences, n for the n-th single token of a generation.
        key: Key of the random numbers in training.
        part: The stage.
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
        """Return which rows are image tokens, ``[sum T_i]`` bool.

        Raises:
            ValueError: If the spans are unknown, as at a server.
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
        """Return a generator for this stage and pass, keyed by (seed, step, micro-batch, client).

        In evaluation and generation there are no steps: the generator depends on the seed only
        and is the same for every batch. Use `normal` for numbers that differ between samples.
        """
        return self._seeded(device, self._numbers())

    def normal(self, rows: Tensor) -> Tensor:
        """Return standard normal numbers in the shape and dtype of ``rows``, ``[sum T_i, ...]``.

        In training they depend on (seed, step, micro-batch, client). In evaluation and generation
        they depend on seed and sample, so that an answer does not depend on the rest of the batch.
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
        """Return the context with the client's knowledge of its samples added.

        Args:
            inputs: Inputs of the pass; each sample has one row, or one row per beam.
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
        # after the first cut, tokens may have been withdrawn, and patch indices are unknown
        first = self.site.direction is Direction.UP
        patches = inputs.patches(self.site.cut) if first else ()
        return replace(known, pixels=inputs.batch.pixel_values, patches=patches)

    def of(self, part: Part) -> "StageContext":
        """Return the context of a stage; only the client's stages see the samples."""
        sends = part in ("encode", "decode_gradient")
        if sends == (self.site.direction is Direction.UP):
            return replace(self, part=part)
        return replace(self, part=part, spans=(), keys=(), groups=(), pixels=None, patches=())

    def left(self, places: Tensor) -> "StageContext":
        """Return the context of the remaining rows.

        Args:
            places: Indices of the remaining rows, ``[n]`` ascending.

        Raises:
            ValueError: If the indices do not ascend, or a sample lacks its last token.
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
    """The rows that cross after the sender withdrew others, and their indices.

    Args:
        rows: The rows that cross, ``[m, d]``.
        places: Their indices among the given rows, ``[m]`` ascending. They must include the last
            token of every sample, because the answer continues from it.
    """

    rows: Tensor
    places: Tensor


class Stage(Protocol):
    """Transforms rows ``[sum T_i, d]``; an encoder may also withdraw some of them."""

    def __call__(self, rows: Tensor, context: StageContext, /) -> Tensor | Remaining:
        """Return the transformed rows."""
        ...


@dataclass(frozen=True)
class Stages:
    """The stages at the two ends of a cut; None does nothing.

    Args:
        encode: Applied to activations at their sender.
        decode: Applied to activations at their receiver.
        encode_gradient: Applied to gradients at their sender, the activations' receiver.
        decode_gradient: Applied to gradients at their receiver, the activations' sender.
    """

    encode: Stage | None = None
    decode: Stage | None = None
    encode_gradient: Stage | None = None
    decode_gradient: Stage | None = None

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return any(getattr(self, each.name) is not None for each in fields(self))


def places_by_sample(places: Tensor, before: Tensor, after: StageContext) -> list[Tensor]:
    """Return the indices of the remaining tokens within each sample.

    Args:
        places: Indices of the remaining rows among all rows, ``[m]``.
        before: Tokens of each sample before the withdrawal, ``[B]``.
        after: Context of the remaining rows.
    """
    starts = (before.cumsum(dim=0) - before).tolist()
    rows = torch.split(places, after.lengths)
    return [row - start for row, start in zip(rows, starts, strict=True)]


def _drawn(rows: Tensor, generator: torch.Generator) -> Tensor:
    # always draw in float32, so that every dtype gets the same numbers, rounded
    drawn = torch.randn(rows.shape, generator=generator, device=rows.device, dtype=torch.float32)
    return drawn.to(rows.dtype)


def _words(text: str) -> tuple[int, ...]:
    digest = hashlib.sha256(text.encode()).digest()
    return tuple(int.from_bytes(digest[start : start + 4], "big") for start in range(0, 16, 4))
