import random

import numpy as np
import pytest
import torch
from torch import nn

from qpriv.errors import ConfigError
from qpriv.paradigms.recipe import LoraRecipe, rate
from qpriv.paradigms.seeding import preserved_random, seed_step


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
@pytest.mark.parametrize("warmup", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_rates_rise_to_the_peak_and_never_leave_zero_to_one(schedule, warmup, steps):
    rates = [rate(step, steps, schedule, warmup) for step in range(steps)]
    assert all(0 < value <= 1 for value in rates)
    assert max(rates) == 1
    peak = rates.index(1)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)


def test_the_optimiser_takes_what_is_trainable_alone():
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    (group,) = LoraRecipe().optimizer(layer.parameters()).param_groups
    assert group["params"] == [layer.weight]
    assert group["lr"] == 3e-4


@pytest.mark.parametrize(
    "settings",
    [
        {"rank": 0},
        {"dropout": 1.0},
        {"warmup": 1.5},
        {"weight_decay": -1.0},
        {"micro_batch_size": 0},
        {"epochs": 0},
        {"clip": 0.0},
    ],
)
def test_impossible_values_are_refused(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        LoraRecipe(**settings)


def draws():
    return random.random(), float(np.random.random()), float(torch.rand(1))


def test_a_step_s_numbers_depend_on_its_place_alone():
    seen = set()
    for place in [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]:
        seed_step(*place)
        first = draws()
        draws()
        seed_step(*place)
        assert draws() == first
        seen.add(first)
    assert len(seen) == 5


def test_random_numbers_are_given_back_after_an_error_too():
    seed_step(0, 0, 0)
    expected = draws()
    seed_step(0, 0, 0)
    with pytest.raises(ZeroDivisionError), preserved_random():
        draws()
        raise ZeroDivisionError
    assert draws() == expected
