from collections import Counter
from itertools import combinations

import pytest

from datamodules.face_scenes import FaceScenes
from qpriv.attacks.victim import AttackData
from qpriv.errors import ConfigError


@pytest.fixture(scope="module")
def data():
    return FaceScenes(num_train=20, num_memorised=15, num_eval=8, num_auxiliary=30, num_targets=12)


def lists(data):
    return {
        "members": data.members(),
        "nonmembers": data.nonmembers(),
        "population": data.population(),
        "auxiliary": data.auxiliary(),
        "targets": data.targets(),
        "gallery": data.gallery(),
        "val": data.samples("val"),
        "test": data.samples("test"),
    }


def people(samples):
    return {sample.meta["identity"] for sample in samples} - {None}


def test_attackers_get_what_they_ask_for(data):
    assert isinstance(data, AttackData)
    assert all(lists(data).values())


def test_no_image_is_in_two_lists(data):
    groups = [{sample.group_id for sample in samples} for samples in lists(data).values()]
    assert not any(one & other for one, other in combinations(groups, 2))


def test_an_attacker_has_people_of_its_own(data):
    found = {name: people(samples) for name, samples in lists(data).items()}
    own = found.pop("auxiliary") | found.pop("population")
    assert not any(own & private for private in found.values())
    assert found["targets"] <= found["gallery"]


def test_nonmembers_ask_what_members_ask(data):
    kinds = [
        Counter(sample.meta["question_type"] == "memorisation" for sample in samples)
        for samples in (data.members(), data.nonmembers())
    ]
    assert kinds[0] == kinds[1] == {False: 40, True: 15}
    population = Counter(s.meta["question_type"] == "memorisation" for s in data.population())
    assert population == {False: 80, True: 30}


def test_there_can_be_many_more_nonmembers_than_members():
    few, many = (
        FaceScenes(num_train=2, num_memorised=3, num_eval=1, nonmember_factor=factor)
        for factor in (1, 4)
    )
    assert [s.key for s in few.members()] == [s.key for s in many.members()]
    assert len(many.nonmembers()) == 4 * len(few.nonmembers()) == 4 * len(many.members())
    kinds = Counter(s.meta["question_type"] == "memorisation" for s in many.nonmembers())
    assert kinds == {False: 16, True: 12}
    assert not {s.group_id for s in many.members()} & {s.group_id for s in many.nonmembers()}


def test_evaluation_asks_nothing_that_must_be_memorised(data):
    for split in ("val", "test"):
        asked = {sample.meta["question_type"] for sample in data.samples(split)}
        assert asked <= {"color", "shape", "count", "exist"}
        assert len(data.samples(split)) == 16


def test_world_changes_the_scenes_and_seed_does_not():
    def images(**settings):
        data = FaceScenes(num_train=3, num_eval=1, **settings)
        return [sample.image.load().tobytes() for sample in data.members()]

    assert images(seed=1) == images(seed=2)
    assert images(world=1) != images(world=0)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("num_train", -1), ("population_factor", 1), ("nonmember_factor", 0), ("batch_size", 0)],
)
def test_impossible_numbers(setting, value):
    with pytest.raises(ConfigError, match=f"{setting} is {value}"):
        FaceScenes(**{setting: value})
