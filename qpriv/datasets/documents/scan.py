"""Scan noise and resolution: what a scanner does to a page before a model sees it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class ScanNoise:
    """Random shift, ink strength and grain, drawn anew for every page and step.

    Without it a small reader memorises answers by their own pixels, which are gone once the
    answer is erased: it looks harmless and is not.

    Args:
        shift: Largest shift in pixels on either axis; what leaves on one side enters on the other.
        ink: Lowest and highest factor on the contrast against the page's brightest tone.
        brightness: Lowest and highest factor on the whole page.
        grain: Largest standard deviation of the grain, as a share of full brightness.
        fixed_grain: Every page gets the largest grain rather than a random one.
    """

    shift: int = 3
    ink: tuple[float, float] = (0.6, 1.1)
    brightness: tuple[float, float] = (1.0, 1.0)
    grain: float = 0.15
    fixed_grain: bool = True

    def jitter(self, page: Tensor, generator: Generator) -> Tensor:
        """Return a page ``[3, H, W]`` in [0, 255], shifted and with other ink."""
        steps = torch.randint(-self.shift, self.shift + 1, (2,), generator=generator)
        ink, brightness = (
            low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float32))
            for low, high in (self.ink, self.brightness)
        )
        rolled = torch.roll(page.float(), (int(steps[0]), int(steps[1])), (-2, -1))
        paper = rolled.amax()
        return ((paper - (paper - rolled) * ink) * brightness).clamp(0, 255)

    def add_grain(self, page: Tensor, generator: Generator) -> Tensor:
        """Return a page ``[3, H, W]`` in [0, 255] with grey grain."""
        strength = (
            1.0
            if self.fixed_grain
            else float(torch.rand((), generator=generator, dtype=torch.float32))
        )
        grain = torch.randn(page.shape[-2:], generator=generator, dtype=torch.float32)
        grain = grain.to(page.device)
        return (page + 255 * self.grain * strength * grain).clamp(0, 255)


def reduce(page: Tensor, resolution: float) -> Tensor:
    """Return a page ``[3, H, W]`` shrunk by averaging to a share of its height and width."""
    if resolution == 1.0:
        return page
    size = [max(1, round(side * resolution)) for side in page.shape[-2:]]
    return F.interpolate(page[None].float(), size, mode="area")[0]


def enlarge(page: Tensor, size: Sequence[int]) -> Tensor:
    """Return a page ``[3, h, w]`` stretched back to a height and width."""
    if tuple(page.shape[-2:]) == tuple(size):
        return page
    return F.interpolate(page[None].float(), tuple(size), mode="bilinear", antialias=False)[0]


def scan(
    page: Tensor,
    resolution: float = 1.0,
    noise: ScanNoise | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Return a page as a scanner of some resolution delivers it, at its old size.

    The size stays, the information goes: models of every resolution cost the same, and start
    from the same weights.

    Args:
        page: Pixels in [0, 255], ``[3, H, W]``.
        resolution: Share of the height and width that survives.
        noise: Random scan noise; None for a clean scan.
        generator: Where the noise is drawn from; needed with noise.
    """
    size = page.shape[-2:]
    if noise is None:
        return enlarge(reduce(page, resolution), size)
    assert generator is not None, "noise needs a generator"
    small = reduce(noise.jitter(page, generator), resolution)
    return enlarge(noise.add_grain(small, generator), size)
