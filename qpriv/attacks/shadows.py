"""Shadow models: victims of the attacker's own, of which it knows what they were trained on."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from qpriv.datasets.sample import VQASample
from qpriv.paradigms.centralized import fine_tune

from .query import QueryAccess, QueryPolicy, Replies
from .victim import Victim


@dataclass(frozen=True)
class Shadow:
    """What one shadow model said after each of its epochs.

    Args:
        inside: Which of the ``n`` samples asked about it was trained on.
        replies: Its replies about all of them, one entry an epoch.
    """

    inside: NDArray[np.bool_]
    replies: tuple[Replies, ...]

    def to_bytes(self) -> bytes:
        """Return the shadow as the content of an ``.npz`` file."""
        buffer = io.BytesIO()
        columns = np.stack([np.stack(reply.columns()) for reply in self.replies])
        np.savez(buffer, inside=self.inside, columns=columns)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return what `to_bytes` wrote."""
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            replies = tuple(Replies(*epoch) for epoch in arrays["columns"])
            return cls(arrays["inside"], replies)


def train_shadow(
    victim: Victim,
    population: Sequence[VQASample],
    trained_on: Sequence[int],
    asked: Sequence[VQASample],
    query_policy: QueryPolicy,
    seed: int,
) -> Shadow:
    """Fine-tune a shadow model by the victim's recipe and ask it after every epoch.

    The victim's own adapter rests meanwhile and is what it was afterwards.

    Args:
        victim: Whose model, policy and recipe the shadow shares.
        population: The attacker's samples.
        trained_on: Rows of the population to train on.
        asked: Samples to ask about.
        query_policy: Which tokens a query keeps.
        seed: Seed of adapter, order and queries.
    """
    access = QueryAccess(victim.model, victim.policy, query_policy, encode=victim.encode, seed=seed)
    chosen = [population[row] for row in trained_on]
    replies: list[Replies] = []
    fine_tune(
        victim.model,
        chosen,
        victim.policy,
        victim.recipe,
        seed,
        on_epoch_end=lambda epoch: replies.append(access.score(asked)),
        encode=victim.encode,
    )
    keys = {sample.key for sample in chosen}
    return Shadow(np.asarray([sample.key in keys for sample in asked]), tuple(replies))
