"""SplitGuard: a client finds out whether its server teaches it the task at all.

Erdogan, Kupcu, Cicek, *SplitGuard: Detecting and Mitigating Training-Hijacking Attacks in Split
Learning*, WPES 2022 (arXiv 2108.09052). Now and then the client sends random labels. An honest
server's gradients then point elsewhere and are longer; a hijacker's do not depend on labels. Such
fake batches are not learned from.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError


@dataclass
class _Mean:
    """Running mean of vectors and of their lengths."""

    total: Tensor
    length: float = 0.0
    count: int = 0

    def add(self, vector: Tensor) -> None:
        self.total = self.total + vector
        self.length += float(vector.norm())
        self.count += 1


class SplitGuard:
    """Compares the client's gradients of fake batches with those of regular ones.

    Regular batches are dealt to two halves, which show how far apart honest gradients lie anyway.
    The score is near 1 for an honest server and falls towards ``2 ** -exponent`` for one whose
    gradients do not depend on the labels, the more fake batches it rests on; over a few dozen it
    is noisy.

    Args:
        fake_share: Share of batches with random labels (0.1 as published).
        start: Regular batches before the first fake one; at first an honest server errs too.
        sharpness: Factor in the sigmoid (5 in the published code).
        exponent: Power of the sigmoid (2 in the published code).
        seed: Seed of the draws.

    Raises:
        ConfigError: If the share is not in (0, 1).
    """

    def __init__(
        self,
        fake_share: float = 0.1,
        start: int = 20,
        sharpness: float = 5.0,
        exponent: float = 2.0,
        seed: int = 0,
    ) -> None:
        if not 0 < fake_share < 1:
            raise ConfigError(f"fake_share is {fake_share}", remedy="choose more than 0, below 1")
        self.fake_share, self.start = fake_share, start
        self.sharpness, self.exponent = sharpness, exponent
        self._generator = torch.Generator().manual_seed(seed)
        self._batches = 0
        self._means = tuple(_Mean(torch.zeros(())) for _ in range(3))

    def sends_fake(self) -> bool:
        """Return whether the next batch gets random labels."""
        self._batches += 1
        return self._batches > self.start and self._chance(self.fake_share)

    def observe(self, gradient: Tensor, *, fake: bool) -> None:
        """Take note of the client's gradient of one batch, in any one shape."""
        if not fake and self._batches <= self.start:
            return
        half = 1 if self._chance(0.5) else 2
        self._means[0 if fake else half].add(gradient.detach().cpu().double().flatten())

    @property
    def num_fakes(self) -> int:
        """Return how many fake batches the score rests on."""
        return self._means[0].count

    @property
    def score(self) -> float | None:
        """Return the score in (0, 1), or None before every kind of batch was seen."""
        if any(mean.count == 0 for mean in self._means):
            return None
        fake, first, second = (mean.total / mean.count for mean in self._means)
        lengths = [mean.length / mean.count for mean in self._means]
        apart = abs(lengths[0] - (lengths[1] + lengths[2]) / 2)
        spread = abs(lengths[1] - lengths[2])
        if apart + spread == 0:
            return math.pow(0.5, self.exponent)  # nothing differs from anything
        told = angle(fake, (first + second) / 2) * apart - angle(first, second) * spread
        squashed = 1 / (1 + math.exp(-self.sharpness * told / (apart + spread)))
        return math.pow(squashed, self.exponent)

    def state_dict(self) -> dict[str, Any]:
        """Return what was seen so far."""
        means = [{"total": m.total, "length": m.length, "count": m.count} for m in self._means]
        return {
            "means": means,
            "batches": self._batches,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what was seen before."""
        self._means = tuple(_Mean(**mean) for mean in state["means"])
        self._batches = state["batches"]
        self._generator.set_state(state["generator"])

    def _chance(self, share: float) -> bool:
        return float(torch.rand((), generator=self._generator)) < share


def angle(first: Tensor, second: Tensor) -> float:
    """Return the angle between two vectors in radians, 0 where one of them is zero.

    >>> round(angle(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])), 4)
    1.5708
    """
    lengths = float(first.norm() * second.norm())
    return math.acos(max(-1.0, min(1.0, float(first @ second) / lengths))) if lengths else 0.0


def with_random_answers(
    samples: Sequence[VQASample], generator: torch.Generator
) -> list[VQASample]:
    """Return a batch in which every sample has the answer of another one, drawn anew.

    Raises:
        ValueError: If there is only one sample.
    """
    if len(samples) < 2:
        raise ValueError("a batch of one sample has no other answer")
    shift = int(torch.randint(1, len(samples), (), generator=generator))
    others = [*samples[shift:], *samples[:shift]]
    return [
        replace(sample, answer=other.answer, answers=other.answers)
        for sample, other in zip(samples, others, strict=True)
    ]
