"""Shadow models: the attacker's own copies of the victim, with known training sets."""

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
    """The replies of one shadow model, by query policy and number of passes.

    Args:
        inside: Whether it was trained on each of the ``n`` queried samples, ``[n]`` bool.
        replies: Its replies about all samples, by query policy and by the passes through its
            training set at the time of the query.
    """

    inside: NDArray[np.bool_]
    replies: Mapping[tuple[QueryPolicy, float], Replies]

    def was_asked(self, passes: float) -> bool:
        """Return whether it was queried after this number of passes."""
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
    """Fine-tune a shadow model by the victim's recipe and ask it the victim's questions.

    The victim's adapter is inactive meanwhile and does not change. Work is shared: the frozen
    encoders run once for all shadows (if ``victim.encode`` is a cache), each LoRA layer is one
    product (`fused_lora`), and query policies that keep the same tokens share their replies.

    Args:
        victim: The victim, whose model, policy and recipe the shadow shares.
        population: The attacker's samples.
        trained_on: Rows of the population to train on.
        asked: Samples to query.
        query_policies: Which tokens a query keeps; every sample is queried under each policy.
        asked_after: Numbers of passes, possibly fractional, after which the shadow is queried.
            Training ends after the largest; the schedule is the recipe's.
        seed: Seed of adapter, order and queries.
    """
    asked_as = distinct(victim.policy, query_policies)
    accesses = {
        policy: QueryAccess.of(victim, policy, seed=seed)
        for policy in dict.fromkeys(asked_as.values())
    }
    chosen = [population[row] for row in trained_on]
    of_a_pass = victim.recipe.steps_of_pass(len(chosen))
    # compare a victim that has taken a step only with a shadow that has taken one
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
