from dataclasses import replace

import pytest

from callbacks.sides import Sides
from qpriv.errors import ConfigError
from tests.callbacks.victims import TinyData


def test_both_sides_are_cut_to_size_and_never_share_a_sample() -> None:
    data = TinyData()
    sides = Sides.of(data, known=5, private=3)
    assert (len(sides.known), len(sides.private)) == (5, 3)
    assert sides.private == list(data.targets())[:3]
    assert not {s.key for s in sides.known} & {s.key for s in sides.private}
    assert sides.origin == f"{data.targets()[0].dataset}/{data.targets()[0].split}"
    assert len(Sides.of(data, known=None, private=None).known) == len(data.auxiliary())


def test_where_pictures_are_attacked_each_is_there_once() -> None:
    data = TinyData()
    data.parts["population"] = [
        replace(s, group_id=str(n // 4)) for n, s in enumerate(data.parts["population"])
    ]
    sides = Sides.of(data, known=6, private=None, one_each=True)
    assert [s.group_id for s in sides.known] == [str(n) for n in range(6)]


@pytest.mark.parametrize("part", ["population", "gallery"])
def test_a_side_without_samples_is_refused_with_the_module_named(part: str) -> None:
    data = TinyData()
    data.parts["population"] = [] if part == "population" else data.parts["population"]
    data.gallery_samples = [] if part == "gallery" else data.gallery_samples
    with pytest.raises(ConfigError, match="TinyData"):
        Sides.of(data, known=2, private=2)
