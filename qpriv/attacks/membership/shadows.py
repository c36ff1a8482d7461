"""Shadow models: victims of the attacker's own, of which it knows what they were trained on."""

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from qpriv.datasets.sample import VQASample
from qpriv.paradigms.centralized import fine_tune

from ..query import QueryAccess, QueryPolicy, Replies, distinct
from ..victim import Victim
from .fused_lora import fused_lora


@dataclass(frozen=True)
class Shadow:
    """What one shadow model said, through each query policy, as often as it was asked.

    Args:
        inside: Which of the ``n`` samples asked about it was trained on.
        replies: Its replies about all of them, by query policy and by how often it had then gone
            through its training set.
    """

    inside: NDArray[np.bool_]
    replies: Mapping[tuple[QueryPolicy, float], Replies]

    def was_asked(self, passes: float) -> bool:
        """Return whether it was asked after so many passes."""
        return any(passes == known for _, known in self.replies)

    def to_bytes(self) -> bytes:
        """Return the shadow as the content of an ``.npz`` file."""
        buffer = io.BytesIO()
        np.savez(
            buffer,
            inside=self.inside,
            policies=np.asarray([policy for policy, _ in self.replies]),
            passes=np.asarray([passes for _, passes in self.replies]),
            columns=np.stack([np.stack(replies.columns()) for replies in self.replies.values()]),
        )
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return what `to_bytes` wrote."""
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            keys = zip(arrays["policies"].tolist(), arrays["passes"].tolist(), strict=True)
            replies = [Replies(*columns) for columns in arrays["columns"]]
            return cls(arrays["inside"], dict(zip(keys, replies, strict=True)))


def train_shadow(
    victim: Victim,
    population: Sequence[VQASample],
    trained_on: Sequence[int],
    asked: Sequence[VQASample],
    query_policies: Sequence[QueryPolicy],
    asked_after: Collection[float],
    seed: int,
) -> Shadow:
    """Fine-tune a shadow model by the victim's recipe and ask it what the victim is asked.

    The victim's own adapter rests meanwhile and is what it was afterwards. Only what depends on
    the shadow's adapter is computed: the frozen encoders are asked once for all shadows
    (``victim.encode``, where that is a cache), LoRA layers are one product each (`fused_lora`),
    and query policies that keep the same tokens share their replies.

    Args:
        victim: Whose model, policy and recipe the shadow shares.
        population: The attacker's samples.
        trained_on: Rows of the population to train on.
        asked: Samples to ask about.
        query_policies: Which tokens a query keeps; every question is asked through each.
        asked_after: After how many passes through its samples it is asked, whole or not; training
            ends with the last of these, and the schedule is the one that the recipe plans.
        seed: Seed of adapter, order and queries.
    """
    asked_as = distinct(victim.policy, query_policies)
    accesses = {
        policy: QueryAccess.of(victim, policy, seed=seed)
        for policy in dict.fromkeys(asked_as.values())
    }
    chosen = [population[row] for row in trained_on]
    of_a_pass = victim.recipe.steps_of_pass(len(chosen))
    # a victim that has taken a step is held against a shadow that has
    due = {passes: max(passes > 0, round(passes * of_a_pass)) for passes in asked_after}
    replies: dict[tuple[QueryPolicy, float], Replies] = {}

    def ask(step: int) -> None:
        now = [passes for passes, due_step in due.items() if due_step == step]
        told = {policy: access.score(asked) for policy, access in accesses.items() if now}
        for passes in now:
            replies.update({(query, passes): told[own] for query, own in asked_as.items()})

    with fused_lora(victim.model):
        fine_tune(
            victim.model,
            chosen,
            victim.policy,
            victim.recipe,
            seed,
            on_step=ask,
            encode=victim.encode,
            steps=max(due.values()),
        )
    keys = {sample.key for sample in chosen}
    return Shadow(np.asarray([sample.key in keys for sample in asked]), replies)
