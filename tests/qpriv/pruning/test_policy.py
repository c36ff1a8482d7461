import copy
from dataclasses import replace

import pytest
import torch

from qpriv.errors import ConfigError, DataError, ModelError
from qpriv.models.features import FeatureSizes
from qpriv.pruning import (
    ConstantRatioPruning,
    DownsamplePruning,
    DynamicPruning,
    FixedRatioPruning,
    NoPruning,
    OraclePruning,
    OracleTable,
    PolicyLabel,
    PruningPolicy,
    RandomPruning,
    kept_count,
    random_scorer,
)
from qpriv.pruning.baselines import cell_centres, coarser_grid
from tests.tiny_models import random_samples

SAMPLES = random_samples(6)
TABLE = OracleTable({s.key: 0.1 * i for i, s in enumerate(SAMPLES)}, "min", (0.1,), 2, 7)


@pytest.fixture(params=["off", "fixed", "dtp", "constant", "random", "oracle", "downsample"])
def policy(request, predictor) -> PruningPolicy:
    return {
        "off": lambda: NoPruning(),
        "fixed": lambda: FixedRatioPruning(0.5, predictor=predictor),
        "dtp": lambda: DynamicPruning(predictor),
        "constant": lambda: ConstantRatioPruning(0.4, predictor=predictor),
        "random": lambda: RandomPruning(0.5),
        "oracle": lambda: OraclePruning(TABLE),
        "downsample": lambda: DownsamplePruning(0.5),
    }[request.param]()


class TestEveryPolicy:
    """The contract of the family."""

    def test_decides_for_every_sample(self, policy, features):
        decision = policy.decide(features, SAMPLES)
        assert len(decision) == len(decision.ratio) == 6
        assert decision.num_patches == 64
        assert decision.ratio.dtype == torch.float64
        assert (decision.counts >= 2).all()

    def test_a_sample_does_not_depend_on_its_batch(self, policy, features):
        together = policy.decide(features, SAMPLES)
        for row in range(6):
            alone = policy.decide(features[row : row + 1], SAMPLES[row : row + 1])
            assert torch.equal(alone.kept[0], together.kept[row])

    def test_decides_alike_twice_and_without_a_trace(self, policy, features):
        state = torch.get_rng_state()
        first, second = (policy.decide(features, SAMPLES) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first.kept, second.kept, strict=True))
        assert torch.equal(torch.get_rng_state(), state)

    def test_answers_and_boxes_are_not_read(self, policy, features):
        blind = [replace(s, answer="?", answers=(), relevant_boxes=None) for s in SAMPLES]
        first, second = policy.decide(features, SAMPLES), policy.decide(features, blind)
        assert all(torch.equal(a, b) for a, b in zip(first.kept, second.kept, strict=True))

    def test_carries_no_gradient(self, policy, features):
        decision = policy.decide(features, SAMPLES)
        assert decision.score is None or not decision.score.requires_grad

    def test_label_can_be_parsed(self, policy):
        assert PolicyLabel.parse(policy.label) == policy.name

    @pytest.mark.parametrize("ratio", [0.25, 0.5])
    def test_the_ratio_that_is_planned_is_the_one_that_is_decided(self, policy, features, ratio):
        """Of constructor arguments alone, as a forecast has them: no policy is made."""
        planned = type(policy).planned_ratio(ratio=ratio, predictor="none", k_min=None)
        if planned is None:
            assert isinstance(policy, DynamicPruning | OraclePruning)
            return
        policy.ratio = ratio
        assert policy.decide(features, SAMPLES).ratio.tolist() == [planned] * len(SAMPLES)

    def test_survives_copying(self, policy, features):
        again = copy.deepcopy(policy).decide(features, SAMPLES)
        assert torch.equal(again.mask, policy.decide(features, SAMPLES).mask)

    def test_drives_the_model(self, policy, model, batch, features):
        decision = policy.decide(features, batch.samples)
        spans = model(batch, features, decision).image_spans
        assert [stop - start for start, stop in spans] == decision.counts.tolist()


def test_labels(predictor):
    fixed = FixedRatioPruning(0.5, "fused", predictor, alpha=0.25, k_min=4)
    assert NoPruning().label == "off"
    assert fixed.label == "fixed(0.5,fused,alpha=0.25,k_min=4)"
    assert FixedRatioPruning(0.3, "utility", predictor, alpha=0.25).label == "fixed(0.3,utility)"
    assert DynamicPruning(predictor).label == "dtp(fused)"
    assert ConstantRatioPruning(0.4, "sensitivity", predictor).label == "constant(0.4,sensitivity)"
    assert RandomPruning(0.9, resample=True).label == "random(0.9,resampled)"
    assert OraclePruning(TABLE).label == "oracle(min)"
    assert DownsamplePruning(0.75).label == "downsample(0.75)"
    with pytest.raises(DataError, match="not a policy label"):
        PolicyLabel.parse("fixed(0.5")


def test_off_keeps_everything(features):
    decision = NoPruning().decide(features, SAMPLES)
    assert decision.mask.all()
    assert (decision.ratio == 0).all()


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_fixed_keeps_the_best_by_its_score(features, predictor, ratio):
    output = predictor(features)
    scores = {
        "utility": output.utility,
        "sensitivity": -output.sensitivity,
        "fused": 0.5 * output.utility - 2.0 * output.sensitivity,
    }
    for rank_by, score in scores.items():
        policy = FixedRatioPruning(ratio, rank_by, predictor, alpha=0.5, beta=2.0)
        decision = policy.decide(features, SAMPLES)
        count = kept_count(ratio, 64, 2)
        assert decision.counts.tolist() == [count] * 6
        for row in range(6):
            dropped = ~decision.mask[row]
            if dropped.any():
                assert score[row][~dropped].min() >= score[row][dropped].max()


def test_dynamic_keeps_what_the_predictor_asks_for(features, predictor):
    decision = DynamicPruning(predictor).decide(features, SAMPLES)
    ratios = predictor(features).ratio.detach()
    assert torch.equal(decision.ratio.float(), ratios)
    assert decision.counts.tolist() == [kept_count(float(r), 64, 2) for r in ratios]
    assert torch.equal(decision.utility, predictor(features).utility)


def test_constant_control_takes_the_mean_of_the_dynamic_policy(features, predictor):
    dynamic = DynamicPruning(predictor, "utility", alpha=0.5)
    control = ConstantRatioPruning.at_mean_of(dynamic, [features[:2], features[2:]])
    mean = predictor(features).ratio.detach().mean()
    assert control.ratio == pytest.approx(float(mean))
    assert control.rank_by == "utility"
    with pytest.raises(DataError, match="no features"):
        ConstantRatioPruning.at_mean_of(dynamic, [])


def test_a_predictor_folder_gives_the_same_decisions(features, predictor, tmp_path):
    predictor.save_pretrained(tmp_path)
    loaded = FixedRatioPruning(0.5, predictor=str(tmp_path))
    assert not any(weight.requires_grad for weight in loaded.parameters())
    live = FixedRatioPruning(0.5, predictor=predictor)
    assert torch.equal(loaded.decide(features, SAMPLES).mask, live.decide(features, SAMPLES).mask)


def test_a_live_predictor_goes_on_training(predictor):
    DynamicPruning(predictor)
    assert all(weight.requires_grad for weight in predictor.parameters())


def test_oracle_drops_what_its_table_says(features):
    decision = OraclePruning(TABLE).decide(features, SAMPLES)
    assert decision.counts.tolist() == [kept_count(0.1 * row, 64, 2) for row in range(6)]
    scorer = random_scorer(features.sizes, 7)
    assert torch.equal(decision.score, scorer(features.patches, features.question))
    stranger = replace(SAMPLES[0], qid="unseen")
    with pytest.raises(DataError, match="no oracle ratio for sample Random/test/unseen"):
        OraclePruning(TABLE).decide(features[:1], [stranger])
    with pytest.raises(DataError, match="trained scorer"):
        OraclePruning(replace(TABLE, scorer_seed=None))


def test_random_depends_on_seed_and_key(features):
    first = RandomPruning(0.5).decide(features, SAMPLES)
    assert not torch.equal(first.mask, RandomPruning(0.5, seed=1).decide(features, SAMPLES).mask)
    renamed = [replace(sample, qid=f"other {sample.qid}") for sample in SAMPLES]
    assert not torch.equal(first.mask, RandomPruning(0.5).decide(features, renamed).mask)
    # the choice is written down here: it may not change between processes or releases
    assert first.kept[0][:6].tolist() == [1, 5, 6, 7, 9, 12]


def test_random_keeps_every_patch_equally_often(features):
    samples = [replace(SAMPLES[0], qid=str(number)) for number in range(400)]
    wide = features[torch.zeros(400, dtype=torch.long)]
    share = RandomPruning(0.75).decide(wide, samples).mask.float().mean(dim=0)
    # 400 draws of a quarter have a deviation of .022; 64 patches reach 3.5 of them
    assert (share - 0.25).abs().max() < 0.08


def test_resampled_draws_anew_and_resumes_with_the_next_draw(features):
    policy = RandomPruning(0.5, resample=True)
    masks = [policy.decide(features, SAMPLES).mask for _ in range(3)]
    assert not torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], RandomPruning(0.5).decide(features, SAMPLES).mask)
    resumed = RandomPruning(0.5, resample=True)
    resumed.load_state_dict({"draws": torch.tensor(2)})
    assert torch.equal(resumed.decide(features, SAMPLES).mask, masks[2])


def test_downsample_averages_cells(features):
    decision = DownsamplePruning(0.75).decide(features, SAMPLES)
    assert decision.counts.tolist() == [16] * 6
    plane = features.patches[0].view(4, 2, 4, 2, -1).mean(dim=(1, 3)).flatten(0, 1)
    torch.testing.assert_close(decision.merged[0], plane)
    assert decision.kept[0].tolist()[:4] == [9, 11, 13, 15]


@pytest.mark.parametrize("ratio", [0.0, 0.4, 0.75, 1.0])  # cells of one shape, and of several
def test_downsampling_says_of_what_its_tokens_are_made(features, ratio):
    decision = DownsamplePruning(ratio).decide(features, SAMPLES)
    for row, (merged, mixing) in enumerate(zip(decision.merged, decision.mixing, strict=True)):
        torch.testing.assert_close(mixing.sum(dim=1), torch.ones(len(merged)))
        torch.testing.assert_close(merged, mixing @ features.patches[row], rtol=0, atol=1e-5)


@pytest.mark.parametrize("grid", [(8, 8), (24, 24), (3, 7)])
def test_coarser_grids_fit_and_come_near_the_count(grid):
    total = grid[0] * grid[1]
    for count in range(1, total + 1):
        coarse = coarser_grid(grid, count)
        assert coarse[0] <= grid[0] and coarse[1] <= grid[1]
        assert abs(coarse[0] * coarse[1] - count) <= max(grid)
        centres = cell_centres(grid, coarse)
        assert len(centres) == coarse[0] * coarse[1]
        assert (centres.diff() > 0).all() and 0 <= centres[0] and centres[-1] < total
    assert coarser_grid(grid, total) == grid


# bad input


def test_a_ranking_policy_without_predictor_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="FixedRatioPruning needs a predictor"):
        FixedRatioPruning(0.5)
    with pytest.raises(ModelError, match="no predictor here"):
        DynamicPruning(tmp_path)


@pytest.mark.parametrize("kind", [FixedRatioPruning, RandomPruning, DownsamplePruning])
def test_an_impossible_ratio_is_refused(kind):
    with pytest.raises(ConfigError, match=r"pruning ratio is 1\.2"):
        kind(1.2)


def test_a_policy_is_checked_against_the_model_before_work(predictor, model):
    DynamicPruning(predictor).check(model.feature_sizes, model.num_patches)
    with pytest.raises(ConfigError, match="k_min is 65 with 64 patches"):
        RandomPruning(0.5, k_min=65).check(model.feature_sizes, 64)
    with pytest.raises(ConfigError, match="k_min is -1"):
        RandomPruning(0.5, k_min=-1)
    with pytest.raises(ModelError, match="the predictor takes"):
        DynamicPruning(predictor).check(FeatureSizes(1024, 1024, 768, 384), 576)
