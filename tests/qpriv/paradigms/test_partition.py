from collections import Counter
from dataclasses import replace

import pytest

from qpriv.errors import ConfigError
from qpriv.paradigms.partition import draw_partition, group_name
from tests.tiny_models import random_samples


def questions(count: int):
    """Return samples of which two in a row are about one image."""
    drawn = random_samples(count)
    return [
        replace(sample, group_id=str(number // 2), image_id=str(number // 2))
        for number, sample in enumerate(drawn)
    ]


@pytest.mark.parametrize("name", ["iid", "dirichlet"])
def test_no_image_is_with_two_clients_and_none_is_lost(name) -> None:
    samples = questions(60)
    shards = draw_partition(samples, 4, name=name, seed=1)
    owners = {}
    for sample in samples:
        owners.setdefault(group_name(sample), set()).add(shards.client(sample))
    assert all(len(clients) == 1 for clients in owners.values())
    assert sum(shards.sizes(samples)) == 60 and min(shards.sizes(samples)) > 0


def test_iid_shards_differ_by_one_group_at_most_and_depend_on_the_seed() -> None:
    samples = questions(60)
    shards = draw_partition(samples, 4, seed=1)
    counts = Counter(shards.owners.values())
    assert max(counts.values()) - min(counts.values()) <= 1
    assert shards.owners == draw_partition(samples[::-1], 4, seed=1).owners
    assert shards.owners != draw_partition(samples, 4, seed=2).owners


def test_a_small_concentration_skews_and_a_large_one_does_not() -> None:
    samples = questions(400)

    def skew(concentration: float) -> float:
        shards = draw_partition(samples, 2, name="dirichlet", concentration=concentration, seed=3)
        kinds = {s.meta["question_type"] for s in samples}
        shares = []
        for kind in kinds:
            own = [shards.client(s) for s in samples if s.meta["question_type"] == kind]
            shares.append(abs(own.count(0) / len(own) - 0.5))
        return max(shares)

    assert skew(1e4) < 0.1 < 0.35 < skew(0.05)


def test_strange_images_have_a_client_too() -> None:
    shards = draw_partition(random_samples(4), 3)
    strangers = random_samples(40)[4:]
    assert set(map(shards.client, strangers)) == {0, 1, 2}


def test_shards_without_data_are_refused() -> None:
    with pytest.raises(ConfigError, match="5 clients share 4 images"):
        draw_partition(random_samples(4), 5)
    alike = [replace(sample, meta={"question_type": "is"}) for sample in random_samples(8)]
    with pytest.raises(ConfigError, match="leaves one of 4 clients"):
        draw_partition(alike, 4, name="dirichlet", concentration=1e-3)
