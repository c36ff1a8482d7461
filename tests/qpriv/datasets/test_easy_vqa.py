from collections import Counter

import pytest

from qpriv.datasets.easy_vqa import EasyVQA
from qpriv.errors import DataError


@pytest.fixture(scope="module")
def splits():
    return {split: EasyVQA(split) for split in EasyVQA.splits}


def test_official_counts(splits):
    assert len(splits["train"]) + len(splits["val"]) == 38_575
    assert len(splits["test"]) == 9_673
    assert len({sample.image_id for sample in splits["test"].samples}) == 1_000
    train, val = ({s.group_id for s in splits[name].samples} for name in ("train", "val"))
    assert len(train | val) == 4_000
    assert len(val) == 400


def test_no_image_is_in_two_splits(splits):
    groups = [{sample.group_id for sample in split.samples} for split in splits.values()]
    assert len(set.union(*groups)) == sum(map(len, groups))


def test_thirteen_answers_of_three_types(splits):
    samples = splits["test"].samples
    assert len({sample.answer for sample in samples}) == 13
    by_type = Counter((sample.meta["question_type"], sample.answer) for sample in samples)
    assert {answer for kind, answer in by_type if kind == "exist"} == {"yes", "no"}
    assert {a for kind, a in by_type if kind == "shape"} == {"circle", "rectangle", "triangle"}
    assert len([answer for kind, answer in by_type if kind == "color"]) == 8


def test_images_load(splits):
    assert splits["val"][0].image.load().size == (64, 64)


def test_unknown_split():
    with pytest.raises(DataError, match="train, val, test"):
        EasyVQA("validation")
