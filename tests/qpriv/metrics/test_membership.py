import math

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score, roc_curve

from qpriv.metrics.intervals import (
    bootstrap_interval,
    group_weights,
    mean_interval,
    wilson_interval,
)
from qpriv.metrics.membership import (
    area_under_curve,
    attack_report,
    balanced_accuracy,
    best_threshold,
    true_positive_rate,
)


def sample(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    member = generator.random(n) < 0.4
    scores = np.round(generator.normal(size=n) + member, 1)  # rounding makes ties
    return scores, member


def test_area_equals_sklearn_with_ties_and_weights() -> None:
    scores, member = sample()
    weights = np.random.default_rng(1).integers(0, 4, size=len(scores))
    ours = area_under_curve(scores, member, weights)
    assert math.isclose(ours, roc_auc_score(member, scores, sample_weight=weights), rel_tol=1e-12)


@pytest.mark.parametrize("fpr", [0.01, 0.05, 0.1])
def test_true_positive_rate_equals_sklearns_curve(fpr: float) -> None:
    scores, member = sample()
    alarms, hits, _ = roc_curve(member, scores, drop_intermediate=False)
    ours = true_positive_rate(scores, member, fpr, np.ones(len(scores), dtype=int))
    assert math.isclose(ours, hits[alarms <= fpr].max())


def test_balanced_accuracy_equals_sklearn() -> None:
    scores, member = sample()
    called = scores > 0.5
    ours = balanced_accuracy(called, member, np.ones(len(scores), dtype=int))
    assert math.isclose(ours, balanced_accuracy_score(member, called))


def test_best_threshold_is_no_worse_than_any_other() -> None:
    scores, member = sample(60)
    ones = np.ones(len(scores), dtype=int)
    best = balanced_accuracy(scores >= best_threshold(scores, member), member, ones)
    others = [balanced_accuracy(scores >= t, member, ones) for t in np.linspace(-4, 4, 200)]
    assert best >= max(others)


def test_low_false_positive_rates_need_enough_non_members() -> None:
    scores, member = sample(1500)
    report = {result.name: result for result in attack_report(scores, member, resamples=20)}
    assert report["tpr_at_0.1_fpr"].status == "not applicable"
    assert report["tpr_at_0.1_fpr"].value is None
    assert "10000" in report["tpr_at_0.1_fpr"].note
    few = {r.name: r for r in attack_report(scores[:600], member[:600], resamples=20)}
    assert few["tpr_at_1_fpr"].value is None
    assert few["auc"].ci is not None and few["auc"].ci[0] < few["auc"].value < few["auc"].ci[1]


def test_advantage_belongs_to_the_given_threshold() -> None:
    scores = np.asarray([0.9, 0.8, 0.4, 0.1])
    member = np.asarray([True, True, False, False])
    report = {r.name: r.value for r in attack_report(scores, member, threshold=0.85, resamples=5)}
    assert report["advantage"] == 0.5
    assert report["balanced_accuracy"] == 0.75
    assert report["balanced_accuracy_best"] == 1.0


def test_rows_of_a_group_are_drawn_together() -> None:
    groups = ["a", "a", "b", "c", "c", "c"]
    weights = group_weights(groups, resamples=50)
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 3] == weights[:, 5]).all()
    assert set(weights[:, [0, 2, 3]].sum(axis=1)) == {3}


def test_mean_interval_equals_a_loop_over_groups() -> None:
    values = np.asarray([1.0, 2.0, 5.0, math.nan, 4.0])
    groups = ["a", "a", "b", "b", "c"]
    known = [(v, g) for v, g in zip(values, groups, strict=True) if not math.isnan(v)]
    weights = group_weights([g for _, g in known], resamples=200, seed=3)
    means = [
        np.mean([v for (v, _), w in zip(known, row, strict=True) for _ in range(w)])
        for row in weights
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    ours = mean_interval(values, groups, resamples=200, seed=3)
    assert ours is not None
    assert np.allclose(ours, (low, high))


def test_grouping_widens_the_interval_of_repeated_rows() -> None:
    values = np.repeat(np.random.default_rng(0).normal(size=20), 10)
    apart = mean_interval(values, list(range(200)))
    grouped = mean_interval(values, list(np.repeat(range(20), 10)))
    assert apart is not None and grouped is not None
    assert grouped[1] - grouped[0] > 2 * (apart[1] - apart[0])


def test_no_interval_without_two_groups() -> None:
    assert bootstrap_interval(["a", "a"], lambda w: 0.0) is None
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(0, 20)[0] == 0.0
