import math

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from qpriv.metrics.perceptual import gmsd
from qpriv.metrics.reconstruction import psnr


def slow(restored: Tensor, truth: Tensor) -> float:
    """Return the published formula, pixel by pixel, of one picture ``[3, H, W]``."""

    def edges(picture: Tensor) -> list[float]:
        grey = [[sum(w * float(picture[c, 2 * y + dy, 2 * x + dx]) / 4
                     for c, w in enumerate((0.299, 0.587, 0.114))
                     for dy in (0, 1) for dx in (0, 1))
                 for x in range(picture.shape[2] // 2)] for y in range(picture.shape[1] // 2)]  # fmt: skip

        def at(y: int, x: int) -> float:
            return grey[y][x] if 0 <= y < len(grey) and 0 <= x < len(grey[0]) else 0.0

        found = []
        for y in range(len(grey)):
            for x in range(len(grey[0])):
                across = sum(at(y + d, x - 1) - at(y + d, x + 1) for d in (-1, 0, 1)) / 3
                down = sum(at(y - 1, x + d) - at(y + 1, x + d) for d in (-1, 0, 1)) / 3
                found.append(math.hypot(across, down))
        return found

    c = 170 / 255**2
    pairs = zip(edges(restored), edges(truth), strict=True)
    similar = [(2 * a * b + c) / (a * a + b * b + c) for a, b in pairs]
    mean = sum(similar) / len(similar)
    return math.sqrt(sum((s - mean) ** 2 for s in similar) / len(similar))


def test_deviation_is_the_published_formula() -> None:
    restored, truth = torch.rand(2, 3, 3, 8, 10, generator=torch.Generator().manual_seed(0))
    expected = torch.tensor([slow(*pair) for pair in zip(restored, truth, strict=True)])
    assert torch.allclose(gmsd(restored, truth), expected, atol=1e-5)


def test_a_blur_with_the_better_psnr_has_the_worse_deviation() -> None:
    generator = torch.Generator().manual_seed(1)
    truth = (torch.rand(4, 1, 8, 8, generator=generator) > 0.5).float().expand(-1, 3, -1, -1)
    truth = interpolate(truth, scale_factor=4.0)
    blurred = interpolate(avg_pool2d(truth, 8), scale_factor=8.0)
    darker = 0.3 * truth  # every edge in its place
    assert (psnr(blurred, truth) > psnr(darker, truth)).all()
    assert (gmsd(blurred, truth) > gmsd(darker, truth)).all()
    assert torch.equal(gmsd(truth, truth), torch.zeros(4))
