"""Shadow models: victims of the attacker's own, of which it knows what they were trained on."""

import io
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from qpriv.datasets.sample import VQASample
from qpriv.paradigms.centralized import fine_tune

from .fused_lora import fused_lora
from .query import QueryAccess, QueryPolicy, Replies, distinct
from .victim import Victim


@dataclass(frozen=True)
class Shadow:
    """What one shadow model said, through each query policy, after those of its epochs that count.

    Args:
        inside: Which of the ``n`` samples asked about it was trained on.
        replies: Its replies about all of them, by query policy and epoch.
    """

    inside: NDArray[np.bool_]
    replies: Mapping[tuple[QueryPolicy, int], Replies]

    def to_bytes(self) -> bytes:
        """Return the shadow as the content of an ``.npz`` file."""
        buffer = io.BytesIO()
        np.savez(
            buffer,
            inside=self.inside,
            policies=np.asarray([policy for policy, _ in self.replies]),
            epochs=np.asarray([epoch for _, epoch in self.replies]),
            columns=np.stack([np.stack(replies.columns()) for replies in self.replies.values()]),
        )
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return what `to_bytes` wrote."""
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            keys = zip(arrays["policies"].tolist(), arrays["epochs"].tolist(), strict=True)
            replies = [Replies(*columns) for columns in arrays["columns"]]
            return cls(arrays["inside"], dict(zip(keys, replies, strict=True)))


def train_shadow(
    victim: Victim,
    population: Sequence[VQASample],
    trained_on: Sequence[int],
    asked: Sequence[VQASample],
    query_policies: Sequence[QueryPolicy],
    epochs: Container[int],
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
        epochs: After which epochs it is asked, counted from 0.
        seed: Seed of adapter, order and queries.
    """
    asked_as = distinct(victim.policy, query_policies)
    accesses = {
        policy: QueryAccess(victim.model, victim.policy, policy, encode=victim.encode, seed=seed)
        for policy in dict.fromkeys(asked_as.values())
    }
    chosen = [population[row] for row in trained_on]
    replies: dict[tuple[QueryPolicy, int], Replies] = {}

    def ask(epoch: int) -> None:
        if epoch in epochs:
            told = {policy: access.score(asked) for policy, access in accesses.items()}
            replies.update({(query, epoch): told[own] for query, own in asked_as.items()})

    with fused_lora(victim.model):
        fine_tune(
            victim.model,
            chosen,
            victim.policy,
            victim.recipe,
            seed,
            on_epoch_end=ask,
            encode=victim.encode,
        )
    keys = {sample.key for sample in chosen}
    return Shadow(np.asarray([sample.key in keys for sample in asked]), replies)
