"""Shadow models, LiRA and RMIA against plain loops."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.attacks.timing import Pair
from qpriv.attacks.membership.lira import lira_scores
from qpriv.attacks.membership.rmia import rmia_scores
from qpriv.attacks.membership.shadows import train_shadow
from qpriv.attacks.query import QueryAccess, QueryPolicy
from qpriv.datasets.face_scenes import FaceScenes
from qpriv.models.cache import FeatureCache
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import Encode, fine_tune
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.pruning.baselines import RandomPruning
from qpriv.pruning.policy import NoPruning, PruningPolicy
from qpriv.split import Channel

Floats = NDArray[np.float64]
QUERIES: tuple[QueryPolicy, ...] = ("same", "off", "resampled")
TRAINED, ASKED = 96, 78
"""Samples a shadow trains on and is asked about: as many questions a step as in the study."""


@dataclass(frozen=True)
class Shared:
    """A victim, by what its shadows share with it."""

    model: VisionLanguageModel
    policy: PruningPolicy
    encode: Encode
    recipe: LoraRecipe
    channel: Channel = field(default_factory=lambda: Channel.supposed((4,)))
    seed: int = 0


def pairs(shadows: int) -> list[Pair[Floats]]:
    """Return the pairs of this page; so many shadow models."""
    policies = (NoPruning(), RandomPruning(0.5), RandomPruning(0.9))
    return [*(shadow_pair(policy, shadows) for policy in policies), lira_pair(), rmia_pair()]


def shadow_pair(policy: PruningPolicy, shadows: int) -> Pair[Floats]:
    """Train and ask shadow models: all that can be shared, against one full run after another."""
    model = VisionLanguageModel.from_pretrained("tiny")
    recipe = LoraRecipe(learning_rate=2e-3, batch_size=32, epochs=1)
    model.add_lora(recipe.rank, recipe.alpha)  # the victim's own, which rests
    samples = FaceScenes("train", TRAINED, 0, "scenes", 2).samples
    draws = [np.random.default_rng(n).permutation(len(samples)) for n in range(shadows)]
    asked = samples[:ASKED]

    def ours() -> Floats:
        with tempfile.TemporaryDirectory() as folder:
            victim = Shared(model, policy, FeatureCache(model, Path(folder)), recipe)
            told = [
                train_shadow(victim, samples, order[:TRAINED].tolist(), asked, QUERIES, {1.0}, n)
                for n, order in enumerate(draws)
            ]
        return np.stack([shadow.replies["same", 1.0].log_prob for shadow in told])

    def plain() -> Floats:
        told: list[Floats] = []
        for number, order in enumerate(draws):

            def ask(step: int, seed: int = number) -> None:
                if step < recipe.steps(TRAINED):
                    return
                each = [QueryAccess(model, policy, q, seed=seed).score(asked) for q in QUERIES]
                told.append(each[0].log_prob)

            chosen = [samples[row] for row in order[:TRAINED].tolist()]
            fine_tune(model, chosen, policy, recipe, number, on_step=ask)
        return np.stack(told)

    return Pair(
        attack=f"{shadows} shadows, {policy.label}",
        ours=ours,
        plain=plain,
        says="cached encoders, one product a LoRA layer, equal queries once; "
        "full runs one after another",
        differ=largest,
        rounds=1,
        promised=2,
    )


def lira_pair(samples: int = 5000, shadows: int = 16) -> Pair[Floats]:
    """LiRA online with a variance of its own for each sample."""
    rng = np.random.default_rng(0)
    victim, odds = rng.normal(size=samples), rng.normal(size=(shadows, samples))
    inside = rng.random((shadows, samples)) < 0.5
    inside[0], inside[1] = True, False

    def plain() -> Floats:
        scores = []
        for column in range(samples):
            known = odds[inside[:, column], column], odds[~inside[:, column], column]
            likely = [norm.logpdf(victim[column], np.median(k), k.std() + 1e-30) for k in known]
            scores.append(likely[0] - likely[1])
        return np.asarray(scores)

    return Pair(
        attack="LiRA",
        ours=lambda: lira_scores(victim, odds, inside, mode="online", fixed_variance=False),
        plain=plain,
        says=f"{samples} samples, {shadows} shadows at once; a loop over samples",
        differ=largest,
        rounds=1,
    )


def rmia_pair(samples: int = 5000) -> Pair[Floats]:
    """RMIA over a sorted population."""
    rng = np.random.default_rng(1)
    ratios, population = rng.gamma(2, size=samples), rng.gamma(2, size=samples)
    return Pair(
        attack="RMIA",
        ours=lambda: rmia_scores(ratios, population),
        plain=lambda: np.asarray((ratios[:, None] / population[None] > 1.0).mean(axis=1)),
        says=f"{samples} samples against {samples}: sorted; the matrix of all pairs",
        differ=largest,
    )


def largest(ours: Floats, plain: Floats) -> float:
    """Return the largest difference of two arrays."""
    return float(np.abs(np.asarray(ours) - np.asarray(plain)).max())
