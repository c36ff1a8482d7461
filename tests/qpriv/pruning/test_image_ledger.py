"""What later questions about an image may change: each setting on the policy alone."""

import pickle
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from qpriv.errors import ConfigError
from qpriv.models.features import NEUTRAL_QUESTION, VisualFeatures
from qpriv.pruning import (
    ConstantRatioPruning,
    DynamicPruning,
    DynamicThresholdPredictor,
    FixedRatioPruning,
    ImageLedger,
    PolicyLabel,
    PredictorConfig,
    PruningPolicy,
    Wish,
)
from qpriv.pruning.image_ledger import anew
from tests.tiny_models import random_samples

GRID = (4, 4)
SIZES = {"patch_dim": 8, "pooled_dim": 8, "question_dim": 6, "sensitivity_dim": 5}
IMAGES = random_samples(3)


@pytest.fixture(scope="module")
def toy() -> DynamicThresholdPredictor:
    """A predictor whose ranking and ratio depend much on the question."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        predictor = DynamicThresholdPredictor(PredictorConfig(**SIZES, hidden_dim=16))
        predictor.utility_scorer.query.weight.data *= 8
        predictor.ratio_predictor.layers[-1].weight.data *= 25
    return predictor.requires_grad_(False)


def asked(number: int, rows: int = 3) -> VisualFeatures:
    """Return the features of the same images under another question."""
    images, question = torch.Generator().manual_seed(0), torch.Generator().manual_seed(number)
    drawn = torch.randn(1, 6, generator=question).expand(rows, -1)
    return VisualFeatures(
        torch.randn(3, 16, 8, generator=images)[:rows],
        torch.randn(3, 8, generator=images)[:rows],
        drawn,
        torch.randn(3, 16, 5, generator=images)[:rows],
        GRID,
        GRID,
        neutral_question=torch.ones(rows, 6),
    )


def answered(policy: PruningPolicy, numbers: range = range(12)) -> Tensor:
    """Return what is kept of each image under many questions, ``[Q, 3, N]``."""
    return torch.stack([policy.decide(asked(number), IMAGES).mask for number in numbers])


def test_without_a_setting_each_question_decides_as_before(toy) -> None:
    """The source's text: the best patches by the score, as many as the ratio leaves."""
    policy = DynamicPruning(toy)
    assert policy.ledger is None and not policy.needs
    for number in range(12):
        decision = policy.decide(asked(number), IMAGES)
        output = toy(asked(number))
        score = output.utility - output.sensitivity
        counts = [max(1, round((1 - float(ratio)) * 16)) for ratio in output.ratio]
        plain = [
            row.argsort(descending=True, stable=True)[:count].sort().values
            for row, count in zip(score, counts, strict=True)
        ]
        assert [row.tolist() for row in decision.kept] == [row.tolist() for row in plain]
        assert decision.ratio.tolist() == output.ratio.double().tolist()
    masks = answered(policy)
    assert len(masks.sum(dim=2).unique()) > 4  # the question steers the count


def test_the_first_question_decides_for_all_later_ones(toy) -> None:
    policy = DynamicPruning(toy, mask="first_question")
    masks = answered(policy)
    assert torch.equal(masks[0], answered(DynamicPruning(toy))[0])
    assert (masks == masks[0]).all()
    other = replace(IMAGES[0], image_id="another", qid="another")
    (fresh,) = policy.decide(asked(5, rows=1), [other]).mask
    assert torch.equal(fresh, answered(DynamicPruning(toy))[5, 0])


def test_within_a_batch_the_first_row_of_an_image_decides(toy) -> None:
    policy = DynamicPruning(toy, mask="first_question")
    two = asked(1, rows=2)
    same = VisualFeatures(
        two.patches[:1].expand(2, -1, -1), two.pooled[:1].expand(2, -1),
        torch.cat([asked(1, 1).question, asked(2, 1).question]),
        two.sensitivity[:1].expand(2, -1, -1), GRID, GRID,
    )  # fmt: skip
    about = [IMAGES[0], replace(IMAGES[0], qid="later")]
    first, later = policy.decide(same, about).mask
    assert torch.equal(first, later)
    assert torch.equal(first, DynamicPruning(toy).decide(same, about).mask[0])


def test_a_policy_by_image_never_sees_a_question(toy) -> None:
    policy = DynamicPruning(toy, mask="per_image")
    assert policy.needs == {"neutral_question"} and policy.ledger is None
    masks = answered(policy)
    assert (masks == masks[0]).all()
    blind = replace(asked(0), question=torch.full((3, 6), torch.nan))
    assert torch.equal(policy.decide(blind, IMAGES).mask, masks[0])
    neutral = replace(asked(0), question=torch.ones(3, 6))
    assert torch.equal(DynamicPruning(toy).decide(neutral, IMAGES).mask, masks[0])


def test_the_neutral_question_is_encoded_as_if_it_were_asked(model) -> None:
    samples = [replace(one, question=NEUTRAL_QUESTION) for one in random_samples(2)]
    own = model.encode(model.preprocessor(samples))
    given = model.encode(model.preprocessor(random_samples(2)), frozenset({"neutral_question"}))
    torch.testing.assert_close(given.neutral_question, own.question)


@pytest.mark.parametrize("budget", [4, 9])
def test_a_budget_bounds_what_ever_crosses_of_an_image(toy, budget) -> None:
    policy = DynamicPruning(toy, image_budget=budget)
    free, masks = answered(DynamicPruning(toy)), answered(policy)
    assert (free.any(dim=0).sum(dim=1) > budget).all()
    union = masks.any(dim=0)
    assert (union.sum(dim=1) <= budget).all() and (union.sum(dim=1) == budget).any()
    for row, sample in enumerate(IMAGES):
        assert policy.ledger.crossed(sample.image_key) == tuple(union[row].nonzero()[:, 0].tolist())
    # as many cross as before, while so many may: patches that have crossed stand in
    assert torch.equal(masks.sum(dim=2), free.sum(dim=2).clamp(max=budget))


def test_a_budget_that_is_never_used_up_changes_nothing(toy) -> None:
    policy = DynamicPruning(toy, image_budget=16)
    assert torch.equal(answered(policy), answered(DynamicPruning(toy)))


def test_the_best_of_what_is_new_crosses_while_the_budget_lasts() -> None:
    ledger = ImageLedger(budget=3)
    ledger.record([Wish("a", (5, 1)), Wish("a", (7, 5, 9)), Wish("b", (2,)), Wish("a", (4,))])
    assert (ledger.crossed("a"), ledger.crossed("b")) == ((1, 5, 7), (2,))


def test_a_budget_below_what_has_crossed_lets_nothing_more_cross() -> None:
    former, ledger = ImageLedger(budget=9), ImageLedger(budget=4)
    former.record([Wish("a", tuple(range(9)))])
    ledger.set_extra_state(former.get_extra_state())
    ledger.record([Wish("a", tuple(range(9, 30)))])
    assert ledger.crossed("a") == tuple(range(9))


def test_an_image_of_which_nothing_may_cross_stays_dark_and_a_ledger_small() -> None:
    ledger = ImageLedger(first_decides=True)
    (kept,) = ledger.settle(torch.rand(1, 600), [Wish("dark", ())])
    assert len(kept) == 0 and len(ledger) == 1
    ledger.record([Wish(str(number), tuple(range(576))) for number in range(100)])
    assert ledger.crossed("99") == tuple(range(576))
    assert len(pickle.dumps(ledger.get_extra_state())) < 100 * 100


def test_a_ledger_goes_on_where_it_was_saved(toy) -> None:
    policy, resumed = (DynamicPruning(toy, mask="first_question") for _ in range(2))
    masks = answered(policy, range(1))
    resumed.ledger.set_extra_state(policy.ledger.get_extra_state())
    assert torch.equal(answered(resumed, range(7, 8)), masks)
    with anew(resumed.ledger):
        assert not torch.equal(answered(resumed, range(7, 8)), masks)
    assert torch.equal(answered(resumed, range(8, 9)), masks)


def test_steps_and_a_least_share_bound_the_predicted_ratio(toy) -> None:
    ratios = {
        ratio
        for number in range(30)
        for ratio in DynamicPruning(toy, ratio_step=0.25).predicted_ratios(asked(number))
    }
    assert ratios <= {0.0, 0.25, 0.5, 0.75, 1.0} and len(ratios) > 2
    bounded = DynamicPruning(toy, min_ratio=0.6, ratio_step=0.25)
    assert answered(bounded).sum(dim=2).amax() <= round(0.4 * 16)
    assert answered(DynamicPruning(toy)).sum(dim=2).amax() > round(0.4 * 16)
    assert answered(DynamicPruning(toy, ratio_step=0.3)).any()  # 4 x 0.3 is cut off at 1


def test_counts_tell_less_in_steps_and_nothing_without_the_question(toy) -> None:
    def told(policy: PruningPolicy) -> float:
        """Return how many bits the count of an image's tokens tells of which question it was."""
        counts = answered(policy, range(64)).sum(dim=2)
        _, seen = counts[:, 0].unique(return_counts=True)
        share = seen / seen.sum()
        return float(-(share * share.log2()).sum())

    plain = told(DynamicPruning(toy))
    assert plain > 1.5
    assert told(DynamicPruning(toy, ratio_step=0.25)) < plain - 0.3
    assert told(DynamicPruning(toy, mask="per_image")) == 0
    assert told(DynamicPruning(toy, mask="first_question")) == 0


def test_labels_tell_every_setting_and_the_control_shares_them(toy) -> None:
    plain, given = DynamicPruning(toy), {"mask": "first_question", "image_budget": 9}
    assert plain.label == "dtp(fused)"
    told = DynamicPruning(toy, **given, min_ratio=0.5, ratio_step=0.25)
    assert told.label == (
        "dtp(fused,mask=first_question,image_budget=9,min_ratio=0.5,ratio_step=0.25)"
    )
    assert str(PolicyLabel.parse(told.label)) == told.label
    control = ConstantRatioPruning.at_mean_of(told, [asked(0)])
    assert (control.mask, control.image_budget) == ("first_question", 9)
    assert control.ratio >= 0.5


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mask": "per_patient"}, "mask"),
        ({"image_budget": 0}, "image_budget"),
        ({"min_ratio": 1.5}, "1.5"),
        ({"ratio_step": 0.0}, "ratio_step"),
        ({"ratio_step": 1.5}, "ratio_step"),
    ],
)
def test_settings_out_of_range_are_refused(toy, given, says) -> None:
    with pytest.raises(ConfigError, match=says):
        DynamicPruning(toy, **given)


def test_what_cannot_fit_a_backbone_is_refused(toy) -> None:
    for policy in (
        DynamicPruning(toy, k_min=5, image_budget=4),
        DynamicPruning(toy, image_budget=17),
        DynamicPruning(toy, k_min=5, min_ratio=0.9),
        FixedRatioPruning(0.25, predictor=toy, image_budget=11),
    ):
        with pytest.raises(ConfigError, match=r"image_budget|min_ratio"):
            policy.check_patches(16)
    FixedRatioPruning(0.25, predictor=toy, image_budget=12).check_patches(16)
