"""What crosses of dropped patches, over what the kept patches' own pixels give away."""

import pytest
import torch
from torch import Tensor

from qpriv.attacks.observation import Scenes
from qpriv.attacks.reconstruction.residual import Inpainter, residual_report

GRID, SIDE = (4, 4), 16


def smooth(count: int, seed: int) -> Scenes:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 3, 3, generator=generator)
    pictures = torch.nn.functional.interpolate(coarse, (SIDE, SIDE), mode="bilinear")
    empty = torch.zeros(count, SIDE, SIDE, dtype=torch.bool)
    groups = tuple(f"{seed}-{number}" for number in range(count))
    return Scenes(pictures, empty, (None,) * count, (None,) * count, groups)


def halves(count: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randperm(16, generator=generator)[:8].sort().values for _ in range(count)]


AUXILIARY, PRIVATE, KEPT = smooth(200, 0), smooth(30, 1), halves(30)


def report(restored: Tensor, kept: list[Tensor] = KEPT) -> dict[str, float | None]:
    figures = residual_report(restored, PRIVATE, kept, GRID, AUXILIARY)
    return {figure.name: figure.value for figure in figures}


def test_conditional_colours_are_the_regression_of_all_on_the_kept() -> None:
    # noise: the colours of smooth pictures depend on one another, and have no one regression
    generator = torch.Generator().manual_seed(2)
    auxiliary, private = torch.rand(201, 3, SIDE, SIDE, generator=generator).split([200, 1])
    painted = Inpainter.of(auxiliary, GRID, penalty=0.0).paint(private, KEPT[:1])
    pooled = torch.nn.functional.avg_pool2d  # colours by another road: mean over 4 x 4 pixels
    known = pooled(auxiliary, 4).flatten(2).transpose(1, 2).double()
    asked = pooled(private, 4).flatten(2).transpose(1, 2).double()
    kept, dropped = KEPT[0], torch.tensor([n for n in range(16) if n not in KEPT[0]])
    inputs = known[:, kept].flatten(1)
    inputs = torch.cat([inputs, torch.ones(len(inputs), 1)], dim=1)
    solved = torch.linalg.lstsq(inputs, known[:, dropped].flatten(1), driver="gelsd").solution
    row = torch.cat([asked[:, kept].flatten(1), torch.ones(1, 1)], dim=1)
    found = pooled(painted, 4).flatten(2).transpose(1, 2)[0, dropped].flatten()
    assert torch.allclose(found.double(), (row @ solved)[0], atol=1e-4)


def test_kept_patches_have_their_true_colour_and_dropped_ones_are_never_looked_at() -> None:
    floor = Inpainter.of(AUXILIARY.pictures, GRID)
    painted = floor.paint(PRIVATE.pictures, KEPT)
    changed = PRIVATE.pictures.clone()
    mask = ~PRIVATE.regions(KEPT, GRID).kept
    changed[mask[:, None].expand_as(changed)] = 0.7
    assert torch.equal(painted, floor.paint(changed, KEPT))
    colours = [torch.nn.functional.avg_pool2d(p, 4).flatten(2) for p in (painted, PRIVATE.pictures)]
    for row, kept in enumerate(KEPT):
        assert torch.allclose(colours[0][row][:, kept], colours[1][row][:, kept], atol=1e-4)


def test_smooth_pictures_are_guessed_far_above_the_mean_image() -> None:
    found = report(AUXILIARY.pictures.mean(0).expand_as(PRIVATE.pictures))
    assert found["residual_floor_inpainting"] > found["residual_floor_mean_image"] + 3
    assert found["residual_psnr"] == pytest.approx(found["residual_floor_mean_image"])
    assert found["residual_gain"] < -3


def test_a_guess_is_no_leak_and_dropped_patches_that_come_back_are_one() -> None:
    guess = Inpainter.of(AUXILIARY.pictures, GRID).paint(PRIVATE.pictures, KEPT)
    assert report(guess)["residual_gain"] == pytest.approx(0, abs=1e-6)
    leaked = 0.5 * guess + 0.5 * PRIVATE.pictures
    assert report(leaked)["residual_gain"] > 4
    # kept patches do not count: spoiling them changes nothing
    spoilt = leaked.clone()
    spoilt[PRIVATE.regions(KEPT, GRID).kept[:, None].expand_as(spoilt)] = 0.0
    assert report(spoilt) == report(leaked)


def test_without_pruning_there_is_nothing_to_guess() -> None:
    everything = [torch.arange(16)] * 30
    figures = residual_report(PRIVATE.pictures, PRIVATE, everything, GRID, AUXILIARY)
    assert {figure.status for figure in figures} == {"not applicable"}
