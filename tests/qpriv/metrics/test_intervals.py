"""Intervals over nested units, against loops, and never of no width."""

import numpy as np
import pytest

from qpriv.metrics.intervals import (
    bootstrap_interval,
    hierarchical_interval,
    hierarchical_weights,
    mean_interval,
    rate_interval,
    wilson_interval,
)
from qpriv.metrics.means import IMAGE_GROUP, PERSON, mean_result
from qpriv.metrics.membership import attack_report

PEOPLE = ["a", "a", "a", "a", "b", "b", "c", "c", "c"]
IMAGES = [0, 0, 1, 2, 0, 1, 0, 1, 1]  # of each person: image 0 of a is not image 0 of b


def test_units_are_drawn_anew_within_each_unit_that_was_drawn() -> None:
    weights = hierarchical_weights([PEOPLE, IMAGES], resamples=4000)
    assert (weights[:, 0] == weights[:, 1]).all()  # rows of one image stay together
    assert (weights[:, 7] == weights[:, 8]).all()
    images = weights[:, [0, 2, 3, 4, 5, 6, 7]]
    draws = {"a": images[:, :3].sum(1) / 3, "b": images[:, 3:5].sum(1) / 2}
    draws["c"] = images[:, 5:].sum(1) / 2
    assert (sum(draws.values()) == 3).all()  # three people are drawn, each with all its draws
    assert images.mean(0) == pytest.approx(np.ones(7), abs=0.09)
    assert (images[:, 0] != images[:, 1]).any()


def test_the_nested_bootstrap_has_the_spread_of_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(12), 10)
    images = np.tile(np.repeat(np.arange(5), 2), 12)
    values = rng.normal(size=12)[people] + rng.normal(size=(12, 5))[people, images]
    loop = []
    for _ in range(800):
        drawn: list[float] = []
        for person in rng.integers(12, size=12):
            for image in rng.integers(5, size=5):
                drawn += values[(people == person) & (images == image)].tolist()
        loop.append(np.mean(drawn))
    found = hierarchical_interval(values, [people.tolist(), images.tolist()])
    assert found == pytest.approx(tuple(np.quantile(loop, [0.025, 0.975])), abs=0.09)
    assert found == hierarchical_interval(values, [people.tolist(), images.tolist()])
    apart = mean_interval(values, list(range(120)))
    assert found is not None and apart is not None
    assert found[1] - found[0] > 1.5 * (apart[1] - apart[0])


def test_a_level_that_does_not_name_every_row_is_refused() -> None:
    with pytest.raises(ValueError, match="each of the 3 values"):
        hierarchical_interval([1.0, 2.0, 3.0], [["a", "b"]])
    with pytest.raises(ValueError, match="one level or more"):
        hierarchical_interval([1.0], [])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_rates_of_none_and_of_all_have_wilsons_interval(share: float) -> None:
    found = rate_interval([share] * 6, "aabbcc")
    assert found == wilson_interval(3 * share, 3)
    assert rate_interval([share], "a") == wilson_interval(share, 1)


def test_equal_shares_that_are_neither_are_not_taken_for_a_rate_of_one() -> None:
    assert rate_interval([0.25] * 4, "abcd") == wilson_interval(1, 4)
    balanced = rate_interval([1, 0, 1, 0], "aabb")  # every group has the mean
    assert balanced == wilson_interval(1, 2)


def test_equal_values_have_no_interval_and_say_so() -> None:
    kept = mean_result("kept_tokens", [32.0] * 3, {IMAGE_GROUP: "abc"}, unit="tokens")
    assert (kept.value, kept.ci, kept.clustered_by) == (32.0, None, "")
    assert kept.note == "no interval: all values are equal"
    alone = mean_result("psnr", [1.0, 2.0], {IMAGE_GROUP: "aa"}, unit="dB")
    assert alone.note == "no interval: fewer than two units"
    seen = mean_result("seen", [0.1, np.nan, 0.2, 0.3], {PERSON: "aabb", IMAGE_GROUP: "wxyz"})
    assert (seen.n, seen.clustered_by, seen.note) == (3, "person and image group", "")


def test_perfect_attacks_have_intervals_of_some_width() -> None:
    scores = np.concatenate([np.linspace(2, 3, 2000), np.linspace(0, 1, 1500)])
    member = scores >= 2
    report = attack_report(scores, member, threshold=1.5, resamples=20)
    for own in report:
        if own.value is not None:
            assert own.ci is not None and own.ci[0] < own.value <= own.ci[1] + 1e-9
    auc = next(own for own in report if own.name == "auc")
    assert auc.ci == pytest.approx(wilson_interval(1500, 1500))
    advantage = next(own for own in report if own.name == "advantage")
    assert advantage.ci is not None
    assert advantage.ci[0] == pytest.approx(2 * wilson_interval(1500, 1500)[0] - 1)


def test_a_figure_without_bounds_that_no_resample_changes_has_no_interval() -> None:
    assert bootstrap_interval("abc", lambda w: 0.5) is None
    assert bootstrap_interval("abc", lambda w: 0.5, bounds=(0.0, 1.0)) == wilson_interval(1.5, 3)
    low, high = rate_interval([0.0] * 3, "abc", bounds=(-1.0, 1.0)) or (0.0, 0.0)
    end = 2 * wilson_interval(1.5, 3)[1] - 1
    assert (low, high) == pytest.approx((-end, end))
