"""Shadow models trained with all that can be shared, against plain runs of the recipe."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from qpriv.attacks.query import QueryAccess, QueryPolicy, distinct
from qpriv.attacks.shadows import train_shadow
from qpriv.models.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import Encode, fine_tune
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.pruning.controls import RandomPruning
from qpriv.pruning.policy import NoPruning, PruningPolicy
from tests.tiny_models import random_model, random_samples

QUERIES: tuple[QueryPolicy, ...] = ("same", "off", "resampled")


@dataclass
class Attacked:
    model: VisionLanguageModel
    policy: PruningPolicy
    cuts: tuple[int, ...] = (4,)
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
    shadow = train_shadow(victim, samples, range(12), samples, QUERIES, {1}, seed=5)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert shadow.inside.tolist() == [True] * 12 + [False] * 12

    told = {}

    def ask(epoch: int) -> None:
        for query in QUERIES if epoch == 1 else ():
            told[query, epoch] = QueryAccess(model, policy, query, seed=5).score(samples)

    fine_tune(model, samples[:12], policy, victim.recipe, 5, on_epoch_end=ask)
    assert shadow.replies.keys() == told.keys()
    for key, expected in told.items():
        assert np.allclose(shadow.replies[key].log_prob, expected.log_prob, atol=1e-3), key


def test_questions_are_shared_only_where_every_query_keeps_the_same() -> None:
    assert set(distinct(NoPruning(), QUERIES).values()) == {"off"}
    assert distinct(RandomPruning(0.5), QUERIES) == {query: query for query in QUERIES}
