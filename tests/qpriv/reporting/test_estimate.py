"""Intervals against closed forms and a simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from qpriv.reporting.claims.comparison import between_weights, line_weights, slope_weights
from qpriv.reporting.estimate import combine, difference, mean_of

from .fakes import result


def test_several_seeds_give_the_student_interval_of_scipy():
    values = [0.80, 0.83, 0.79, 0.84]
    estimate = mean_of({seed: result("accuracy", v) for seed, v in enumerate(values)})
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert estimate.interval == pytest.approx(expected)
    assert (estimate.rule, estimate.seeds, estimate.n) == ("over seeds", (0, 1, 2, 3), 300)


def test_one_seed_keeps_its_own_interval_however_lopsided():
    one = result("accuracy", 0.9, ci=(0.7, 0.95))
    estimate = mean_of({0: one})
    assert estimate.interval == pytest.approx((0.7, 0.95))
    assert estimate.rule == "within one seed"


def test_one_seed_without_an_interval_has_none():
    estimate = mean_of({0: result("accuracy", 0.9)})
    assert (estimate.interval, estimate.rule) == (None, "none")


def test_a_difference_within_one_seed_joins_the_lopsided_ends_crosswise():
    left, right = result("a", 0.9, ci=(0.7, 0.95)), result("a", 0.5, ci=(0.4, 0.8))
    estimate = difference({0: left}, {0: right})
    assert estimate.value == pytest.approx(0.4)
    assert estimate.low == pytest.approx(0.4 - math.hypot(0.2, 0.3))
    assert estimate.high == pytest.approx(0.4 + math.hypot(0.05, 0.1))


def test_a_difference_over_seeds_is_paired():
    left = {seed: result("a", 0.8 + 0.1 * seed) for seed in range(3)}
    right = {seed: result("a", 0.7 + 0.1 * seed) for seed in range(3)}
    estimate = difference(left, right)
    assert estimate.value == pytest.approx(0.1)
    assert estimate.high - estimate.low == pytest.approx(0, abs=1e-9)


def test_a_difference_takes_only_the_seeds_both_have():
    left = {seed: result("a", 0.8) for seed in (0, 1)}
    assert difference(left, {1: result("a", 0.7, n=9)}).seeds == (1,)
    assert difference(left, {7: result("a", 0.7)}) is None


def test_a_failed_result_has_no_value_to_combine():
    with pytest.raises(ValueError, match="has no value: failed"):
        mean_of({0: result("a", None, status="failed")})


def test_the_joined_interval_covers_a_difference_of_independent_means():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        means = rng.normal([0.7, 0.6], 0.02)
        one, other = (result("a", m, half=1.96 * 0.02) for m in means)
        low, high = combine({0: [(1.0, one), (-1.0, other)]}).interval
        covered += low <= 0.1 <= high
    assert 0.92 <= covered / 400 <= 0.98


def test_line_and_slope_weights_are_those_of_least_squares():
    points, values = np.array([0, 0.3, 0.5, 0.7, 0.9]), np.array([18.4, 13.5, 13.3, 12.4, 10.7])
    slope, intercept = np.polyfit(points, values, 1)
    assert np.dot(slope_weights(list(points)), values) == pytest.approx(slope)
    for at in (0.0, 0.256, 0.5, 1.0):
        assert np.dot(line_weights(list(points), at), values) == pytest.approx(
            intercept + slope * at
        )


@pytest.mark.parametrize("at", [0.0, 0.1, 0.3, 0.45, 0.9])
def test_between_weights_interpolate(at):
    points, values = [0, 0.3, 0.5, 0.9], np.array([4.0, 1.0, 3.0, 0.0])
    assert np.dot(between_weights(points, at), values) == pytest.approx(
        np.interp(at, points, values)
    )


@pytest.mark.parametrize("at", [-0.2, 1.5])
def test_between_weights_do_not_extrapolate(at):
    assert sorted(between_weights([0.1, 0.5, 0.9], at)) == [0, 0, 1]
