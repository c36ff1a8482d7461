from itertools import chain

import pytest
import torch
from torch.utils.data import TensorDataset

from qpriv.datasets.sampler import EpochSampler, ResumableLoader


def loader(size: int = 11, batch_size: int = 3, seed: int = 5, workers: int = 0) -> ResumableLoader:
    dataset = list(range(size))
    sampler = EpochSampler(dataset, seed=seed)
    return ResumableLoader(
        dataset, batch_size=batch_size, sampler=sampler, collate=list, num_workers=workers
    )


def test_order_is_a_function_of_seed_and_epoch():
    first, second = EpochSampler(range(50), seed=1), EpochSampler(range(50), seed=1)
    torch.manual_seed(123)
    second.set_epoch(4)
    first.set_epoch(4)
    assert list(first) == list(second)
    first.set_epoch(5)
    assert list(first) != list(second)
    assert sorted(first) == list(range(50))


def test_iterating_draws_no_global_random_number():
    before = torch.get_rng_state()
    list(loader())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_evaluation_counts_every_sample_once(world_size):
    ranks = [
        list(EpochSampler(range(33), shuffle=False, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    assert sorted(chain.from_iterable(ranks)) == list(range(33))
    assert [len(rank) for rank in ranks] == [
        len(EpochSampler(range(33), shuffle=False, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]


def test_training_ranks_take_equally_many_samples_and_share_none():
    ranks = [set(EpochSampler(range(33), rank=rank, world_size=4)) for rank in range(4)]
    assert [len(rank) for rank in ranks] == [8] * 4
    assert len(set.union(*ranks)) == 32


def test_ranks_together_see_the_batches_of_one_process():
    whole = list(EpochSampler(range(32), seed=3))
    ranks = [list(EpochSampler(range(32), seed=3, rank=rank, world_size=2)) for rank in range(2)]
    assert [index for pair in zip(*ranks, strict=True) for index in pair] == whole


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stop", [0, 1, 3, 4])
def test_resumed_epoch_gives_the_rest(stop, workers):
    uninterrupted = loader(workers=workers)
    uninterrupted.sampler.set_epoch(2)
    batches = iter(uninterrupted)
    for _ in range(stop):
        next(batches)
    state = uninterrupted.state_dict()
    rest = list(batches)

    resumed = loader(workers=workers)
    resumed.load_state_dict(state)
    assert list(resumed) == rest
    resumed.sampler.set_epoch(3)
    assert len(list(resumed)) == len(resumed) == 4


def test_position_of_another_epoch_does_not_carry_over():
    resumed = loader()
    resumed.load_state_dict({"epoch": 0, "batch": 4})
    resumed.sampler.set_epoch(1)
    assert len(list(resumed)) == 4


def test_tensor_data_set_of_two_ranks():
    data = TensorDataset(torch.arange(4))
    assert len(EpochSampler(data, rank=0, world_size=2)) == 2
