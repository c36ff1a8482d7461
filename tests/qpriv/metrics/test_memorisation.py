"""E, G, M and the scores over K splits."""

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from qpriv.errors import ConfigError
from qpriv.metrics.memorisation import (
    balanced_splits,
    benjamini_hochberg,
    memorised,
    newcombe,
    scores,
    size,
    size_change,
    sizes_by,
)


def flags(text):
    return np.array([letter == "1" for letter in text])


def test_the_union_of_baselines_is_taken_away():
    assert memorised(flags("1111"), flags("1000"), flags("0010")).tolist() == [0, 1, 0, 1]


def test_intervals_come_from_documents_not_from_canaries():
    # the same counts: three canaries of one document vary together
    within = size(flags("111000" * 10), [n // 3 for n in range(60)]).interval
    across = size(flags("101010" * 10), list(range(60))).interval
    assert within[1] - within[0] > 1.3 * (across[1] - across[0])
    assert size(flags("11"), ["a", "a"]).interval is None


def test_parts_add_up():
    parts = sizes_by(flags("1101"), ["id", "id", "time", "time"], list("abcd"))
    assert {label: part.count for label, part in parts.items()} == {"id": 2, "time": 1}


@pytest.mark.parametrize("splits", [2, 4, 8, 50])
def test_every_canary_is_in_half_of_the_splits(splits):
    groups = [f"g{n // 3}" for n in range(40)]
    kept = balanced_splits(groups, splits, seed=1)
    assert (kept.sum(axis=0) == splits // 2).all()
    for name in set(groups):  # a group moves together
        columns = [n for n, group in enumerate(groups) if group == name]
        assert (kept[:, columns] == kept[:, columns[:1]]).all()
    assert not (kept == balanced_splits(groups, splits, seed=2)).all()


@pytest.mark.parametrize("splits", [0, 1, 5])
def test_odd_numbers_of_splits_are_refused(splits):
    with pytest.raises(ConfigError, match="even"):
        balanced_splits(["a"], splits, seed=0)


def test_scores_are_differences_and_sums_of_shares():
    kept = balanced_splits(list(range(4)), 4, seed=0)
    success = np.zeros_like(kept)
    success[:, 0] = kept[:, 0]  # said exactly when trained on
    success[:, 1] = True  # always said
    success[:, 2] = ~kept[:, 2]
    result = scores(success, kept)
    assert result.memorisation.tolist() == [1, 0, -1, 0]
    assert result.simplicity.tolist() == [1, 2, 1, 0]
    assert result.histogram().sum() == 4
    assert result.histogram(flags("1000"), bins=4)[3, 2] == 1


def test_unbalanced_splits_are_refused():
    with pytest.raises(ConfigError, match="half"):
        scores(np.ones((2, 1), bool), np.ones((2, 1), bool))


@pytest.mark.parametrize(
    ("first", "second", "n", "low", "high"),
    [(25, 0, 25, 0.81, 1.0), (12, 0, 25, 0.26, 0.67), (1, 0, 25, -0.10, 0.20), (4, 0, 4, 0.31, 1)],
)
def test_intervals_of_differences(first, second, n, low, high):
    assert np.allclose(newcombe(first, second, n), (low, high), atol=0.006)


def test_a_set_that_stayed_as_it_was_may_have_changed_either_way():
    low, high = size_change(flags("1010"), flags("1010"), list(range(4))).interval
    assert low == -high < 0
    assert size_change(flags("10"), flags("10"), ["a", "a"]).interval is None


def test_discoveries_equal_scipy():
    p_values = np.random.default_rng(0).beta(0.3, 2, 200)
    expected = false_discovery_control(p_values) <= 0.05
    assert (benjamini_hochberg(p_values, 0.05) == expected).all()
    assert not benjamini_hochberg([0.9, 0.8], 0.05).any()


def test_false_discoveries_are_controlled():
    rng = np.random.default_rng(7)
    kept = balanced_splits(list(range(300)), 50, seed=0)
    chance = rng.random((50, 300)) < 0.3  # says the answers whether trained on them or not
    assert scores(chance, kept).significant().sum() == 0
    chance[:, :30] |= kept[:, :30]
    assert scores(chance, kept).significant()[:30].all()
