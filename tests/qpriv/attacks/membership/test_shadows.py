"""Shadow models trained with all that can be shared, against plain runs of the recipe."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from qpriv.attacks.membership.shadows import train_shadow
from qpriv.attacks.query import QueryAccess, QueryPolicy, distinct
from qpriv.errors import ConfigError
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import Encode, fine_tune
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.pruning.baselines import RandomPruning
from qpriv.pruning.policy import NoPruning, PruningPolicy
from qpriv.split import Channel
from tests.tiny_models import random_model, random_samples

QUERIES: tuple[QueryPolicy, ...] = ("same", "off", "resampled")


@dataclass
class Attacked:
    model: VisionLanguageModel
    policy: PruningPolicy
    channel: Channel = field(default_factory=lambda: Channel.supposed((4,)))
    recipe: LoraRecipe = field(
        default_factory=lambda: LoraRecipe(rank=4, learning_rate=1e-2, batch_size=8, epochs=2)
    )
    seed: int = 0

    @property
    def encode(self) -> Encode:
        return self.model.encode


@pytest.mark.parametrize("policy", [NoPruning(), RandomPruning(0.5)], ids=["off", "half"])
def test_a_shadow_says_what_a_plain_run_of_the_recipe_says(policy: PruningPolicy) -> None:
    model = random_model()
    model.add_lora(rank=4)
    victim, samples = Attacked(model, policy), random_samples(24)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    shadow = train_shadow(victim, samples, range(12), samples, QUERIES, {2.0}, seed=5)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert shadow.inside.tolist() == [True] * 12 + [False] * 12

    told = {}

    def ask(step: int) -> None:
        for query in QUERIES if step == 4 else ():
            told[query, 2.0] = QueryAccess(model, policy, query, seed=5).score(samples)

    fine_tune(model, samples[:12], policy, victim.recipe, 5, on_step=ask)
    assert shadow.replies.keys() == told.keys()
    for key, expected in told.items():
        assert np.allclose(shadow.replies[key].log_prob, expected.log_prob, atol=1e-3), key


def test_questions_are_shared_only_where_every_query_keeps_the_same() -> None:
    assert set(distinct(NoPruning(), QUERIES).values()) == {"off"}
    assert distinct(RandomPruning(0.5), QUERIES) == {query: query for query in QUERIES}


def test_a_shadow_stops_in_the_middle_of_a_pass_and_keeps_to_the_planned_schedule() -> None:
    model, samples = random_model(), random_samples(24)
    victim, queries = Attacked(model, NoPruning()), ("off",)
    untrained, early, late = (
        train_shadow(victim, samples, range(16), samples, queries, after, seed=5)
        for after in ([0.0], [0.5, 1.5], [1.5, 2.0])
    )
    assert early.replies.keys() == {("off", 0.5), ("off", 1.5)} and early.was_asked(0.5)
    # what it says then does not depend on what it is asked before or after
    assert np.array_equal(early.replies["off", 1.5].log_prob, late.replies["off", 1.5].log_prob)
    told = {}
    fine_tune(
        model, samples[:16], victim.policy, victim.recipe, 5, steps=3,
        on_step=lambda n: told.update({n: QueryAccess(model, NoPruning(), "off").score(samples)}),
    )  # fmt: skip
    assert sorted(told) == [0, 1, 2, 3]
    for step, replies in ((0, untrained.replies["off", 0.0]), (3, early.replies["off", 1.5])):
        assert np.allclose(replies.log_prob, told[step].log_prob, atol=1e-3), step


def test_a_recipe_without_an_end_needs_one() -> None:
    with pytest.raises(ConfigError, match="epochs is inf"):
        LoraRecipe(epochs=float("inf"))
    endless = LoraRecipe(epochs=float("inf"), schedule="constant", warmup=0, batch_size=8, rank=4)
    model, samples = random_model(), random_samples(8)
    with pytest.raises(ConfigError, match="say after how many steps"):
        fine_tune(model, samples, NoPruning(), endless, 0)
    steps: list[int] = []
    fine_tune(model, samples, NoPruning(), endless, 0, steps.append, steps=2)
    assert steps == [0, 1, 2]
