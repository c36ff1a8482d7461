"""What the student learns from: oracle, saliency, distillation."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from qpriv.errors import ConfigError, DataError
from qpriv.models.decoder.sequences import IGNORED
from qpriv.pruning import (
    OracleSearch,
    OracleTable,
    PruningDecision,
    distillation_loss,
    first_token_matches,
    grounded_utility,
    kept_count,
    mask_loss,
    mask_target,
    random_scorer,
    ratio_loss,
    saliency_rank,
    top_k,
)
from tests.tiny_models import random_samples

GRID = (0.1, 0.3, 0.5, 0.9)


# oracle


def slow_first_token(model, sample, ratio, seed=0):
    """One sample, one ratio."""
    batch = model.preprocessor([sample])
    features = model.encode(batch)
    score = random_scorer(features.sizes, seed)(features.patches, features.question)
    kept = top_k(score, [kept_count(ratio, 64, 2)])
    decision = PruningDecision(kept, 64, torch.tensor([ratio]))
    return model.answer(batch, features, decision, max_new_tokens=1)[0]


@pytest.fixture(scope="module")
def solvable(model):
    """Samples whose gold answers are what a random model says at some ratios and not others."""
    samples = random_samples(10)
    firsts = [[slow_first_token(model, sample, ratio) for ratio in GRID] for sample in samples]
    golds = [row[number % len(GRID)] for number, row in enumerate(firsts)]
    golds[3] = "nobody says this"
    return [
        (replace(sample, answer=gold), [first_token_matches(word, gold) for word in row])
        for sample, gold, row in zip(samples, golds, firsts, strict=True)
    ]


@pytest.mark.parametrize("batch_size", [1, 4, 32])
def test_min_is_the_smallest_ratio_that_answers(model, solvable, batch_size):
    samples = [sample for sample, _ in solvable]
    table = OracleSearch(model, "min", GRID, batch_size=batch_size).search(samples)
    for sample, hits in solvable:
        right = [ratio for ratio, hit in zip(GRID, hits, strict=True) if hit]
        assert table.ratio_of(sample.key) == min(right, default=1.0)
    assert len(set(table.ratios.values())) > 2  # else the test could not tell rules apart


def test_max_is_the_largest_ratio_that_answers(model, solvable):
    samples = [sample for sample, _ in solvable]
    table = OracleSearch(model, "max", GRID).search(samples)
    for sample, hits in solvable:
        right = [ratio for ratio, hit in zip(GRID, hits, strict=True) if hit]
        assert table.ratio_of(sample.key) == max(right, default=0.0)
    assert (table.mode, table.grid, table.k_min, table.scorer_seed) == ("max", GRID, 2, 0)


def test_encodes_each_batch_once_and_reports_progress(model, solvable):
    encoded, progress = [], []

    def encode(batch):
        encoded.append(len(batch))
        return model.encode(batch)

    search = OracleSearch(model, "min", GRID, encode=encode, batch_size=4)
    search.search([sample for sample, _ in solvable], lambda *numbers: progress.append(numbers))
    assert encoded == [4, 4, 2]
    assert progress == [(4, 10), (8, 10), (10, 10)]


def test_a_given_ranking_replaces_the_random_scorer(model, solvable):
    calls = []

    def rank(features):
        calls.append(len(features))
        return torch.arange(64.0).expand(len(features), 64)

    table = OracleSearch(model, "min", GRID, rank=rank).search([solvable[0][0]])
    assert calls == [1]
    assert table.scorer_seed is None


def test_oracle_refuses_an_impossible_grid(model):
    with pytest.raises(ConfigError, match="pruning ratio is 2"):
        OracleSearch(model, grid=(0.1, 2))
    with pytest.raises(ConfigError, match="grid of ratios is empty"):
        OracleSearch(model, grid=())


@pytest.mark.parametrize(
    ("token", "answer", "expected"),
    [
        ("blue", "blue", True),
        ("Blue ", "LIGHT BLUE", True),
        ("b", "blue", True),
        ("blue", "blu", False),
        ("", "blue", False),
        (" ", "light blue", False),
        ("yes", "", False),
    ],
)
def test_first_token_matching(token, answer, expected):
    assert first_token_matches(token, answer) is expected


def test_table_round_trip(tmp_path):
    table = OracleTable({"A/val/1": 0.1, "ü/1": 1.0}, "max", GRID, 2, None)
    table.save(tmp_path / "deep" / "oracle.json")
    assert OracleTable.load(tmp_path / "deep" / "oracle.json") == table


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"ratios": {"a": "x"}}'])
def test_what_is_no_table_is_refused(tmp_path, text):
    (tmp_path / "oracle.json").write_text(text)
    with pytest.raises(DataError, match="not an oracle table"):
        OracleTable.load(tmp_path / "oracle.json")
    with pytest.raises(DataError, match="oracle table is missing"):
        OracleTable.load(tmp_path / "none.json")


# saliency


@given(st.lists(st.integers(-4, 4), min_size=2, max_size=20))
def test_ranks_equal_a_slow_sort(values):
    gradient = torch.tensor(values, dtype=torch.float32).view(1, -1, 1)
    order = sorted(range(len(values)), key=lambda index: (abs(values[index]), index))
    expected = [0.0] * len(values)
    for rank, index in enumerate(order):
        expected[index] = rank / (len(values) - 1)
    found = saliency_rank(gradient, torch.ones_like(gradient))[0]
    assert found.tolist() == pytest.approx(expected)


def test_saliency_adds_up_the_sizes_of_the_products():
    gradient = torch.tensor([[[3.0, -3.0], [5.0, 0.5], [0.0, 0.0]]])
    inputs = torch.tensor([[[2.0, 2.0], [1.0, 1.0], [9.0, 9.0]]])
    # 6 + 6, 5 + 0.5, 0: values of opposite sign do not cancel
    assert saliency_rank(gradient, inputs).tolist() == [[1.0, 0.5, 0.0]]


def test_grounded_utility_equals_one_gradient_a_sample(model, batch, features):
    found = grounded_utility(model, batch, features)
    for row in range(2):
        one = slice(row, row + 1)
        patches = features.patches[one].clone().requires_grad_()
        output = model(batch[one], replace(features[one], patches=patches))
        spots = (output.labels[0] != IGNORED).nonzero().squeeze(1)
        log_probs = output.logits[0, spots - 1].log_softmax(dim=-1)
        gold = log_probs.gather(1, output.labels[0, spots][:, None]).sum()
        (gradient,) = torch.autograd.grad(gold, patches)
        expected = saliency_rank(gradient, patches.detach())[0]
        # rounding may swap neighbours; it may not move a patch
        assert (found[row] - expected).abs().max() <= 3 / 63
    assert not found.requires_grad
    assert all(weight.grad is None for weight in model.parameters())


def test_grounded_utility_works_where_gradients_are_off(model, batch, features):
    with torch.no_grad():
        assert grounded_utility(model, batch[:1], features[:1]).shape == (1, 64)


# distillation


def test_mask_target_by_hand():
    found = mask_target(torch.tensor([[1.0]]), torch.tensor([[0.5]]), alpha=0.5, beta=2.0, gamma=2)
    assert found.item() == pytest.approx(1 / (1 + math.exp(1.0)))


def test_losses_by_hand():
    assert ratio_loss(
        torch.tensor([0.5, 0.1]), torch.tensor([0.3, 0.1]), torch.tensor([1.0, 0.1])
    ).item() == pytest.approx((0.04 + 0.25) / 2)
    logits, target = torch.tensor([[0.0, 2.0]]), torch.tensor([[0.25, 1.0]])
    slow = (math.log(2) + math.log(1 + math.exp(-2))) / 2
    assert mask_loss(logits, target).item() == pytest.approx(slow)


def test_distillation_weighs_its_parts(features, predictor):
    output = predictor(features)
    targets = {
        "teacher_ratio": torch.full((6,), 0.2),
        "oracle_ratio": torch.full((6,), 0.7, dtype=torch.float64),
        "mask": torch.rand(6, 64),
    }
    loss = distillation_loss(output, **targets, lambda_rho=2.0, lambda_m=0.5)
    assert_close(loss.total, 2.0 * loss.ratio + 0.5 * loss.mask)
    assert_close(loss.ratio, ratio_loss(output.ratio, torch.full((6,), 0.2), torch.full((6,), 0.7)))


def test_the_student_learns_its_target(features, predictor):
    """A few steps on six samples: the mask comes near the entropy of its target."""
    student = copy.deepcopy(predictor)
    utility = torch.rand(6, 64, generator=torch.Generator().manual_seed(0))
    mask = mask_target(utility, predictor(features).sensitivity.detach())
    floor = torch.nn.functional.binary_cross_entropy(mask, mask).item()
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        loss = distillation_loss(
            student(features),
            teacher_ratio=torch.full((6,), 0.3),
            oracle_ratio=torch.full((6,), 0.3),
            mask=mask,
        )
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        losses.append(loss)
    assert losses[-1].ratio < 0.01
    assert losses[-1].mask - floor < 0.25 * (losses[0].mask - floor)
