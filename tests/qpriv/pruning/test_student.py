import json
import math

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from qpriv.errors import ModelError
from qpriv.models.features import FeatureSizes
from qpriv.pruning import (
    DynamicThresholdPredictor,
    PredictorConfig,
    RatioPredictor,
    SensitivityHead,
    UtilityScorer,
    bag_logits,
    bag_loss,
    random_scorer,
    resize_grid,
    sensitivity_summary,
)


def size(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


# parameter counts at full size


def test_parameter_counts_are_the_papers():
    assert size(SensitivityHead()) == 65_921
    assert size(RatioPredictor()) == 1_182_721
    assert size(UtilityScorer()) == 458_752
    assert RatioPredictor().layers[0].in_features == 1795
    predictor = DynamicThresholdPredictor()
    assert size(predictor) == 65_921 + 1_182_721 + 458_752 + 1
    assert predictor.gamma.numel() == 1
    assert predictor.gamma.item() == 3.0
    assert dict(predictor.named_buffers()) == {"alpha": 1.0, "beta": 1.0}


def test_alpha_and_beta_are_fixed():
    names = {name for name, _ in DynamicThresholdPredictor().named_parameters()}
    assert "gamma" in names
    assert not names & {"alpha", "beta"}


def test_small_backbones_get_small_predictors():
    config = PredictorConfig.scaled(FeatureSizes(96, 96, 96, 96))
    assert (config.projection_dim, config.head_dim, config.hidden_dim) == (32, 32, 64)
    assert config.sizes == FeatureSizes(96, 96, 96, 96)


# utility


def test_utility_by_hand():
    scorer = UtilityScorer(patch_dim=2, question_dim=1, projection_dim=4)
    with torch.no_grad():
        scorer.query.weight.copy_(torch.tensor([[1.0], [2.0], [0.0], [1.0]]))
        scorer.key.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [0.0, 0.0]]))
    # q = (2, 4, 0, 2), k = (3, 1, 20, 0): q . k = 10, over sqrt(4)
    found = scorer(torch.tensor([[[3.0, 1.0], [0.0, 0.0]]]), torch.tensor([[2.0]]))
    assert_close(found, torch.tensor([[1 / (1 + math.exp(-5)), 0.5]]))


def test_random_scorer_is_fixed_by_its_seed():
    sizes = FeatureSizes(64, 64, 48, 32)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = random_scorer(sizes, 4)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.key.weight, random_scorer(sizes, 4).key.weight)
    assert not torch.equal(first.key.weight, random_scorer(sizes, 5).key.weight)
    assert not first.key.weight.requires_grad


# sensitivity


def test_head_is_two_hidden_layers_with_gelu():
    head = SensitivityHead(feature_dim=3, hidden_dim=4)
    patches = torch.randn(2, 5, 3)
    first, second, last = (head.layers[index] for index in (0, 2, 4))
    hidden = functional.gelu(second(functional.gelu(first(patches))))
    assert_close(head(patches), last(hidden).squeeze(-1).sigmoid())
    assert_close(head.logits(patches).sigmoid(), head(patches))


def test_aligned_map_is_resized_to_the_clip_grid(features, predictor):
    aligned = predictor.sensitivity_head.aligned(features)
    coarse = predictor.sensitivity_head(features.sensitivity).view(-1, 1, 4, 4)
    expected = functional.interpolate(coarse, (8, 8), mode="bilinear").flatten(1)
    assert torch.equal(aligned, expected)


def test_resize_keeps_rows_and_columns_apart():
    values = torch.tensor([[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]])  # two rows of three
    assert resize_grid(values, (2, 3), (2, 6)).view(2, 6).tolist() == [[0.0] * 6, [1.0] * 6]
    assert resize_grid(values, (2, 3), (2, 3)) is values


def test_bag_pooling_by_hand():
    logits = torch.tensor([[0.0, math.log(3)]])  # probabilities 1/2 and 3/4
    assert bag_logits(logits, "mean").sigmoid().item() == pytest.approx(5 / 8)
    assert bag_logits(logits, "lse").item() == pytest.approx(math.log((1 + 3) / 2))
    assert bag_logits(logits, "top_k").item() == pytest.approx(math.log(3))
    many = torch.arange(64.0)[None]
    assert bag_logits(many, "top_k").item() == pytest.approx((63 + 62 + 61 + 60) / 4)


@pytest.mark.parametrize("pooling", ["mean", "top_k", "lse"])
@pytest.mark.parametrize("logit", [-200.0, 0.0, 200.0])
def test_bags_of_equal_patches_pool_to_the_patch(pooling, logit):
    assert bag_logits(torch.full((1, 32), logit), pooling).item() == pytest.approx(logit, abs=1e-4)


@pytest.mark.parametrize("pooling", ["mean", "top_k", "lse"])
def test_bag_loss_is_the_cross_entropy_of_the_pooled_probability(pooling):
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([1, 0, 1])
    chance = bag_logits(logits, pooling).sigmoid()
    slow = -sum(
        math.log(p if label else 1 - p)
        for p, label in zip(chance.tolist(), labels.tolist(), strict=True)
    )
    assert bag_loss(logits, labels, pooling).item() == pytest.approx(slow / 3, rel=1e-5)


# threshold


def test_summary_by_hand():
    values = torch.tensor([[0.2, 0.5, 0.6, 0.7], [0.0, 0.0, 0.0, 0.0]])
    assert_close(sensitivity_summary(values), torch.tensor([[0.5, 0.7, 0.5], [0.0, 0.0, 0.0]]))


def test_outputs_are_what_the_equations_say(features, predictor):
    output = predictor(features)
    assert output.utility.shape == output.sensitivity.shape == (6, 64)
    assert output.ratio.shape == (6,)
    assert ((output.ratio > 0) & (output.ratio < 1)).all()
    mask = torch.sigmoid(3.0 * (1.0 * output.utility - 1.0 * output.sensitivity))
    assert_close(output.soft_mask, mask)
    seen = torch.cat(
        (features.pooled, features.question, sensitivity_summary(output.sensitivity)), dim=1
    )
    assert_close(output.ratio, predictor.ratio_predictor.layers(seen).squeeze(1).sigmoid())


def test_every_part_gets_a_gradient(features, predictor):
    output = predictor(features)
    (output.soft_mask.mean() + output.ratio.mean()).backward()
    grads = {name: weight.grad for name, weight in predictor.named_parameters()}
    predictor.zero_grad()
    assert all(grad is not None and grad.abs().sum() > 0 for grad in grads.values())


def test_half_precision_features_are_accepted(features, predictor):
    half = features.to("cpu", torch.bfloat16)
    assert predictor(half).ratio.dtype == torch.float32


# files


def test_folder_round_trip_is_bit_exact(features, predictor, tmp_path):
    predictor.save_pretrained(tmp_path / "predictor")
    loaded = DynamicThresholdPredictor.from_pretrained(tmp_path / "predictor")
    assert loaded.config == predictor.config
    assert torch.equal(loaded(features).mask_logits, predictor(features).mask_logits)


def test_a_folder_without_predictor_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no predictor here: config\.json is missing"):
        DynamicThresholdPredictor.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "change", [{"patch_dim": 65}, {"no_such_size": 1}, {"patch_dim": "wide"}, {"patch_dim": None}]
)
def test_weights_that_do_not_fit_the_config_are_refused(predictor, tmp_path, change):
    predictor.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ModelError, match="not a predictor") as caught:
        DynamicThresholdPredictor.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)


def test_torn_files_are_refused(predictor, tmp_path):
    predictor.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ModelError, match="not a predictor"):
        DynamicThresholdPredictor.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(ModelError, match="not a predictor"):
        DynamicThresholdPredictor.from_pretrained(tmp_path)
