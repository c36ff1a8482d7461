import pytest
import torch

from qpriv.errors import ModelError
from qpriv.metrics.reidentification import Reidentification, correlation, face_crops, ranks
from qpriv.metrics.sensitivity import (
    SensitivityExclusionRatio,
    sensitive_mass,
    sensitivity_exclusion_ratio,
    surviving_share,
)
from qpriv.pruning.decision import PruningDecision


def decision(kept: list[list[int]], sensitivity: torch.Tensor) -> PruningDecision:
    n = sensitivity.shape[1]
    indices = tuple(torch.tensor(row) for row in kept)
    return PruningDecision(indices, n, torch.zeros(len(kept)), sensitivity=sensitivity)


def test_ratio_equals_a_loop_and_is_undefined_without_pruning() -> None:
    scores = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))
    d = decision([[0, 1, 5], [2], list(range(6))], scores)
    ratios = sensitivity_exclusion_ratio(scores, d.mask)
    for row in range(2):
        kept = d.kept[row].tolist()
        pruned = [i for i in range(6) if i not in kept]
        expected = scores[row, pruned].mean() / scores[row, kept].mean()
        assert torch.isclose(ratios[row], expected)
    assert ratios[2].isnan()


def test_metric_averages_ratios_over_samples_and_batches() -> None:
    scores = torch.tensor([[0.1, 0.4], [0.2, 0.2], [0.5, 0.5]])
    metric = SensitivityExclusionRatio()
    metric.update(decision([[0], [1]], scores[:2]))
    metric.update(decision([[0, 1]], scores[2:]))  # nothing pruned: does not count
    assert metric.compute().item() == pytest.approx((4.0 + 1.0) / 2)


def test_pooled_ratio_puts_all_patches_together() -> None:
    scores = torch.tensor([[0.1, 0.4], [0.2, 0.8]])
    metric = SensitivityExclusionRatio(pooled=True)
    metric.update(decision([[0], [0]], scores))
    assert metric.compute().item() == pytest.approx(1.2 / 0.3)


def test_ratio_of_a_policy_that_prunes_nothing_is_not_a_number() -> None:
    metric = SensitivityExclusionRatio()
    metric.update(decision([[0, 1]], torch.tensor([[0.1, 0.4]])))
    assert metric.compute().isnan()


def test_surviving_share_is_undefined_without_sensitive_patches() -> None:
    shares = surviving_share(
        torch.tensor([[True, True], [False, False]]), torch.tensor([[True, False], [True, True]])
    )
    assert shares[0] == 0.5
    assert shares[1].isnan()


SENSITIVE = torch.tensor([[True, False, True, False], [False] * 4])


def test_mass_of_what_is_merely_kept_is_its_share_of_sensitive_patches() -> None:
    scores = torch.rand(2, 4)
    found = sensitive_mass(SENSITIVE, decision([[0, 1, 3], [0, 1]], scores))
    assert found[0].item() == pytest.approx(1 / 3) and found[1].isnan()
    nothing = PruningDecision((torch.tensor([], dtype=torch.long),) * 2, 4, torch.zeros(2))
    assert sensitive_mass(SENSITIVE, nothing)[0] == 0


def test_mass_of_merged_tokens_equals_a_loop_over_their_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    mixing = tuple(torch.randn(tokens, 4, generator=generator) for tokens in (3, 2))
    mixing[0][1] = 0  # a token that is no mixture of patches
    merging = PruningDecision((torch.tensor([1]),) * 2, 4, torch.zeros(2), mixing=mixing)
    own, whole = 0.0, 0.0
    for weights in mixing[0].tolist():
        for patch, weight in enumerate(weights):
            whole += abs(weight)
            own += abs(weight) if SENSITIVE[0, patch] else 0.0
    assert sensitive_mass(SENSITIVE, merging)[0].item() == pytest.approx(own / whole)


def test_a_merge_that_only_takes_sensitive_patches_has_mass_one() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.5, 0.0]])
    merging = PruningDecision((torch.tensor([3]),) * 2, 4, torch.zeros(2), mixing=(weights,) * 2)
    assert (
        sensitive_mass(SENSITIVE, merging)[0] == 1
    )  # though the patch it takes the place of is not


def test_a_merge_without_weights_is_refused() -> None:
    tokens = (torch.zeros(1, 8),) * 2
    merging = PruningDecision((torch.tensor([3]),) * 2, 4, torch.zeros(2), merged=tokens)
    with pytest.raises(ModelError, match="does not say of which patches"):
        sensitive_mass(SENSITIVE, merging)


def test_a_copy_is_recognised_mirrored_and_darker() -> None:
    gallery = torch.rand(60, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    probes = gallery[10:20].flip(-1) * 0.5 + 0.1
    order = ranks(correlation(probes, gallery), torch.arange(10, 20), torch.arange(60))
    result = Reidentification(order, 60)
    assert result.hits(1).mean() == 1.0
    assert result.chance(5) == pytest.approx(5 / 60)


def test_grey_blob_is_recognised_at_chance_at_best() -> None:
    gallery = torch.rand(60, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    order = ranks(
        correlation(torch.full((5, 3, 24, 24), 0.5), gallery), torch.arange(5), torch.arange(60)
    )
    assert (order == 59).all()  # every similarity ties, and ties never help the attacker


def test_unknown_identity_is_refused() -> None:
    with pytest.raises(ValueError, match="exactly once"):
        ranks(torch.zeros(1, 2), torch.tensor([9]), torch.tensor([1, 2]))


def test_crop_of_a_box_is_its_pixels() -> None:
    picture = torch.rand(1, 3, 64, 64)
    crop = face_crops(picture, [(8, 16, 32, 40)], size=24)
    assert torch.allclose(crop[0], picture[0, :, 16:40, 8:32], atol=1e-6)
