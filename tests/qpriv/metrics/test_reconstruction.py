import math

import torch
from skimage.metrics import structural_similarity

from qpriv.metrics.reconstruction import PERFECT_DB, Regions, patch_pixels, psnr, ssim


def test_psnr_is_the_formula_averaged_per_image_not_pooled() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(3, 3, 8, 8, generator=generator)
    restored = (truth + torch.tensor([0.01, 0.1, 0.3]).view(3, 1, 1, 1)).clamp(0, 1)
    for row in range(3):
        error = sum(
            (float(restored[row, c, y, x]) - float(truth[row, c, y, x])) ** 2
            for c in range(3)
            for y in range(8)
            for x in range(8)
        ) / (3 * 8 * 8)
        assert math.isclose(
            float(psnr(restored, truth)[row]), -10 * math.log10(error), rel_tol=1e-4
        )
    pooled = -10 * math.log10(float((restored - truth).square().mean()))
    assert float(psnr(restored, truth).mean()) > pooled + 1


def test_perfect_picture_has_a_finite_psnr() -> None:
    truth = torch.rand(2, 3, 16, 16)
    assert psnr(truth, truth).tolist() == [PERFECT_DB] * 2
    assert torch.allclose(ssim(truth, truth), torch.ones(2))


def test_reconstruction_is_clamped_before_it_is_scored() -> None:
    truth = torch.ones(1, 3, 4, 4)
    assert psnr(truth * 5, truth).item() == PERFECT_DB


def test_region_scores_only_its_own_pixels() -> None:
    truth = torch.zeros(1, 3, 16, 16)
    restored = truth.clone()
    restored[..., :8] = 0.1
    left = torch.zeros(1, 16, 16, dtype=torch.bool)
    left[..., :8] = True
    assert math.isclose(psnr(restored, truth, left).item(), 20.0, abs_tol=1e-4)
    assert psnr(restored, truth, ~left).item() == PERFECT_DB
    assert psnr(restored, truth, torch.zeros_like(left)).isnan().all()
    assert ssim(restored, truth, ~left).item() > ssim(restored, truth, left).item()


def test_patch_mask_covers_the_patch_and_nothing_else() -> None:
    mask = torch.zeros(1, 6, dtype=torch.bool)
    mask[0, 4] = True  # row 1, column 1 of a 2 x 3 grid
    pixels = patch_pixels(mask, (2, 3), (8, 12))
    expected = torch.zeros(1, 8, 12, dtype=torch.bool)
    expected[0, 4:8, 4:8] = True
    assert torch.equal(pixels, expected)
    named = Regions(sensitive=pixels, kept=pixels).named
    assert torch.equal(named["_dropped"], ~expected)
    assert named[""] is None


def test_ssim_is_that_of_scikit_image_whole_and_in_a_region() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(2, 3, 24, 32, generator=generator)
    restored = (truth + 0.3 * torch.randn(truth.shape, generator=generator)).clamp(0, 1)
    region = torch.zeros(2, 24, 32, dtype=torch.bool)
    region[0, :9, 3:20], region[1, :5] = True, True  # the second lies all in the cropped edge
    whole, part = ssim(restored, truth), ssim(restored, truth, region)
    for row in range(2):
        value, similarity = structural_similarity(
            truth[row].numpy(), restored[row].numpy(), channel_axis=0, data_range=1.0,
            gaussian_weights=True, sigma=1.5, use_sample_covariance=False, full=True,
        )  # fmt: skip
        assert math.isclose(whole[row].item(), value, abs_tol=1e-4)
        if row == 0:
            inner = similarity.mean(axis=0)[5:9, 5:20]
            assert math.isclose(part[row].item(), inner.mean(), abs_tol=1e-4)
    assert part[1].isnan()
