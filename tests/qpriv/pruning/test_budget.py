from decimal import ROUND_HALF_EVEN, Decimal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qpriv.errors import ConfigError, ModelError
from qpriv.pruning import PruningDecision, default_k_min, kept_count, top_k


@pytest.mark.parametrize(
    ("ratio", "num_patches", "k_min", "expected"),
    [
        (0.0, 576, 16, 576),
        (0.3, 576, 16, 403),
        (0.5, 576, 16, 288),
        (0.7, 576, 16, 173),
        (0.9, 576, 16, 58),
        (1.0, 576, 16, 16),
        (0.98, 576, 16, 16),  # 11.5 would stay, the floor says 16
        (0.5, 5, 0, 2),  # 2.5 rounds to the even number
        (0.5, 7, 0, 4),  # 3.5 too
        (1.0, 4, 0, 0),
        (0.0, 0, 0, 0),
    ],
)
def test_kept_count_by_hand(ratio, num_patches, k_min, expected):
    assert kept_count(ratio, num_patches, k_min) == expected


@given(ratio=st.floats(0, 1), num_patches=st.integers(16, 1000), k_min=st.integers(0, 16))
def test_kept_count_lies_between_floor_and_all(ratio, num_patches, k_min):
    count = kept_count(ratio, num_patches, k_min)
    assert k_min <= count <= num_patches
    exact = Decimal(1 - ratio) * num_patches
    nearest = int(exact.quantize(Decimal(1), ROUND_HALF_EVEN))
    # the product is rounded to a float first, which can lift it onto a half
    assert count == max(k_min, nearest) or abs(exact % 1 - Decimal("0.5")) < Decimal("1e-9")


@given(lower=st.floats(0, 1), higher=st.floats(0, 1), num_patches=st.integers(1, 600))
def test_a_higher_ratio_never_keeps_more(lower, higher, num_patches):
    lower, higher = sorted((lower, higher))
    assert kept_count(lower, num_patches, 1) >= kept_count(higher, num_patches, 1)


@pytest.mark.parametrize("ratio", [-0.1, 1.2, float("nan"), float("inf")])
def test_an_impossible_ratio_is_refused(ratio):
    with pytest.raises(ConfigError, match="pruning ratio is"):
        kept_count(ratio, 64, 2)


@pytest.mark.parametrize("k_min", [-1, 65])
def test_an_impossible_floor_is_refused(k_min):
    with pytest.raises(ConfigError, match=f"k_min is {k_min} with 64 patches"):
        kept_count(0.5, 64, k_min)


def test_default_floor_scales_with_the_grid():
    assert [default_k_min(n) for n in (576, 64, 256, 144, 1)] == [16, 2, 7, 4, 1]
    assert all(default_k_min(n) <= n for n in range(1, 600))


scores = st.integers(1, 40).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(0, 5).map(float), min_size=width, max_size=width),
        min_size=1,
        max_size=4,
    )
)


@given(rows=scores, data=st.data())
def test_top_k_equals_a_slow_selection(rows, data):
    counts = [data.draw(st.integers(0, len(rows[0]))) for _ in rows]
    for kept, row, count in zip(top_k(torch.tensor(rows), counts), rows, counts, strict=True):
        # best first, and of equals the first one
        best = sorted(range(len(row)), key=lambda index: (-row[index], index))[:count]
        assert kept.tolist() == sorted(best)


@given(rows=scores, data=st.data())
def test_top_k_of_a_row_does_not_depend_on_its_batch(rows, data):
    count = data.draw(st.integers(0, len(rows[0])))
    together = top_k(torch.tensor(rows), [count] * len(rows))
    for number, row in enumerate(rows):
        assert torch.equal(together[number], top_k(torch.tensor([row]), [count])[0])


@given(permutation=st.permutations(range(12)), count=st.integers(0, 12))
def test_top_k_follows_a_permutation_of_the_patches(permutation, count):
    score = torch.rand(1, 12, generator=torch.Generator().manual_seed(3))
    (kept,) = top_k(score, [count])
    (moved,) = top_k(score[:, list(permutation)], [count])
    assert sorted(permutation[index] for index in moved.tolist()) == kept.tolist()


def test_top_k_refuses_what_is_not_a_number():
    with pytest.raises(ModelError, match="not a number"):
        top_k(torch.tensor([[0.1, float("nan")]]), [1])


# decisions


def decision(*kept: list[int]) -> PruningDecision:
    rows = tuple(torch.tensor(row, dtype=torch.long) for row in kept)
    return PruningDecision(rows, num_patches=5, ratio=torch.zeros(len(rows)))


def test_mask_and_counts():
    found = decision([0, 4], [], [1, 2, 3])
    assert found.counts.tolist() == [2, 0, 3]
    assert found.mask.int().tolist() == [[1, 0, 0, 0, 1], [0] * 5, [0, 1, 1, 1, 0]]
    assert len(found) == 3


@pytest.mark.parametrize("kept", [[1, 0], [1, 1], [-1, 0], [4, 5], [0, 3, 2, 4]])
def test_indices_out_of_order_twice_or_outside_are_refused(kept):
    with pytest.raises(ModelError, match="row 1 are not sorted, unique and below 5"):
        decision([0], kept)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"kept": (torch.tensor([0.0, 1.0]),)}, r"row 0 are torch.float32 of shape \[2\]"),
        ({"kept": (torch.tensor([True, False]),)}, "row 0 are torch.bool"),
        ({"kept": (torch.tensor([[0, 1]]),)}, r"of shape \[1, 2\]"),
        ({"ratio": torch.zeros(2)}, r"ratio of a decision has shape \[2\], not \[1\]"),
        ({"score": torch.zeros(1, 4)}, r"score of a decision has shape \[1, 4\], not \[1, 5\]"),
        ({"sensitivity": torch.zeros(5)}, "sensitivity of a decision"),
        ({"merged": (torch.zeros(2, 3),) * 2}, "merged tokens of 2 samples, kept patches of 1"),
        ({"merged": (torch.zeros(3),)}, r"merged of row 0 has shape \[3\], not \[tokens, D\]"),
        ({"mixing": (torch.zeros(2, 4),)}, r"has shape \[2, 4\], not \[tokens, 5\]"),
        (
            {"mixing": (torch.full((2, 5), torch.nan),)},
            "mixing of row 0 holds numbers that are not",
        ),
        (
            {"merged": (torch.zeros(2, 3),), "mixing": (torch.zeros(1, 5),)},
            "row 0 has 2 merged tokens and weights for 1",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(parts, message):
    good = {"kept": (torch.tensor([0, 1]),), "num_patches": 5, "ratio": torch.zeros(1)}
    PruningDecision(**good)
    with pytest.raises(ModelError, match=message):
        PruningDecision(**good | parts)


def test_merged_tokens_are_what_counts():
    kept, ratio = (torch.tensor([0, 1]),), torch.zeros(1)
    tokens, weights = (torch.zeros(4, 3),), (torch.ones(4, 5),)
    assert PruningDecision(kept, 5, ratio, merged=tokens).counts.tolist() == [4]
    assert PruningDecision(kept, 5, ratio, merged=tokens, mixing=weights).counts.tolist() == [4]
