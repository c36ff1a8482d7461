from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpriv.datasets.folds import assign_groups, group_rank, sample_by_group, split_by_group
from qpriv.datasets.sample import AnswerType, ArrayImage, VQASample

ROWS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers()), max_size=60)


@given(rows=ROWS, cap=st.integers(1, 70), seed=st.integers(0, 99))
def test_one_pass_draws_what_sorting_all_groups_would(rows, cap, seed):
    by_group = defaultdict(list)
    for place, (group, row) in enumerate(rows):
        by_group[group].append((place, row))
    ranked = sorted(by_group, key=lambda group: group_rank(group, seed, "cap"))
    wanted = sorted([pair for group in ranked for pair in by_group[group]][:cap])
    assert sample_by_group(rows, cap, seed) == [row for _, row in wanted]


@given(rows=ROWS, cap=st.integers(1, 70))
def test_the_groups_drawn_do_not_depend_on_the_order_of_the_rows(rows, cap):
    pairs = [(group, group) for group, _ in rows]
    assert sorted(sample_by_group(pairs, cap, 0)) == sorted(sample_by_group(pairs[::-1], cap, 0))


def test_every_group_is_drawn_equally_often():
    rows = [(f"image {number}", number) for number in range(20)]
    drawn = np.zeros(20)
    for seed in range(2000):
        drawn[sample_by_group(rows, 5, seed)] += 1
    # 500 expected, standard deviation 19
    assert drawn.min() > 420 and drawn.max() < 580


@given(
    groups=st.lists(st.sampled_from("abcdefghijklm"), max_size=40),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 99),
)
def test_every_group_gets_one_split_and_no_split_is_empty(groups, share, seed):
    split_of = assign_groups(groups, {"train": share, "val": 1 - share}, seed, "test")
    assert set(split_of) == set(groups)
    if len(split_of) >= 2:
        assert set(split_of.values()) == {"train", "val"}


def sample(group, number):
    return VQASample(
        dataset="Doc", split="train", qid=str(number), image_id=group, group_id=group,
        image=ArrayImage(np.zeros((1, 1, 3), np.uint8)), question="?", answer="a",
        answers=("a",), answer_type=AnswerType.OPEN,
    )  # fmt: skip


def test_shares_are_shares_of_the_groups():
    samples = [sample(str(number % 50), number) for number in range(200)]
    folds = split_by_group(samples, [0.2, 0.5], seed=1)
    assert [len({s.group_id for s in fold}) for fold in folds] == [10, 25]
    assert folds != split_by_group(samples, [0.2, 0.5], seed=2)
    with pytest.raises(ValueError, match="parts of 1"):
        split_by_group(samples, [0.7, 0.7], seed=0)
