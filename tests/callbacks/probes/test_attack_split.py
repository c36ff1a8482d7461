from dataclasses import replace

import pytest

from callbacks.probes.attack_split import AttackSplit
from qpriv.errors import ConfigError
from tests.callbacks.victims import TinyData


def test_both_sides_are_cut_to_size_and_never_share_a_sample() -> None:
    data = TinyData()
    split = AttackSplit.of(data, auxiliary=5, targets=3)
    assert (len(split.auxiliary), len(split.targets)) == (5, 3)
    assert split.targets == list(data.targets())[:3]
    assert not {s.key for s in split.auxiliary} & {s.key for s in split.targets}
    assert split.origin == f"{data.targets()[0].dataset}/{data.targets()[0].split}"
    assert len(AttackSplit.of(data, auxiliary=None, targets=None).auxiliary) == len(
        data.auxiliary()
    )


def test_where_pictures_are_attacked_each_is_there_once() -> None:
    data = TinyData()
    data.parts["population"] = [
        replace(s, group_id=str(n // 4)) for n, s in enumerate(data.parts["population"])
    ]
    split = AttackSplit.of(data, auxiliary=6, targets=None, one_each=True)
    assert [s.group_id for s in split.auxiliary] == [str(n) for n in range(6)]


@pytest.mark.parametrize("part", ["population", "gallery"])
def test_a_side_without_samples_is_refused_with_the_module_named(part: str) -> None:
    data = TinyData()
    data.parts["population"] = [] if part == "population" else data.parts["population"]
    data.gallery_samples = [] if part == "gallery" else data.gallery_samples
    with pytest.raises(ConfigError, match="TinyData"):
        AttackSplit.of(data, auxiliary=2, targets=2)
