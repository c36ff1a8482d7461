import numpy as np
import pytest

from qpriv.datasets import faces
from qpriv.datasets.bags import FaceBags
from qpriv.errors import DataError


def test_half_are_positive_and_only_they_have_boxes():
    bags = FaceBags("train", 60)
    assert sum(sample.sensitive for sample in bags) == 30
    for sample in bags.samples:
        assert bool(sample.sensitive_boxes) == sample.sensitive
        assert sample.image.load().size == (64, 64)
        for left, top, right, bottom in sample.sensitive_boxes:
            assert 0 <= left < right <= 64
            assert 0 <= top < bottom <= 64
    assert {sample.source for sample in bags.samples} == {
        "faces",
        "digits",
        "distractors",
        "textures",
        "scenes",
    }


def test_an_image_depends_on_seed_and_index_alone():
    few, many, other = FaceBags("val", 6), FaceBags("val", 12), FaceBags("val", 6, seed=1)
    for index in range(6):
        pixels = [np.asarray(bags[index].image.load()) for bags in (few, many, other)]
        assert np.array_equal(pixels[0], pixels[1])
        assert not np.array_equal(pixels[0], pixels[2])
    assert len({sample.key for sample in (*few.samples, *FaceBags("test", 6).samples)}) == 12


def test_training_shows_auxiliary_people_alone(monkeypatch):
    shown = []
    drawn = faces.face

    def spy(rng, identities, size, **options):
        shown.append(set(identities))
        return drawn(rng, identities, size, **options)

    monkeypatch.setattr(faces, "face", spy)
    FaceBags("train", 20)
    assert set.union(*shown) == set(faces.AUXILIARY)
    shown.clear()
    FaceBags("test", 20)
    assert set.union(*shown) == set(faces.UNSEEN)


def test_unknown_split():
    with pytest.raises(DataError, match="train, val, test"):
        FaceBags("members")
