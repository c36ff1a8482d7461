"""`QueryAccess`: what an attacker learns by asking, through a named pruning policy."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from qpriv.datasets.sample import VQASample
from qpriv.models.decoder.stages import StageChoice, StagePruner, StageView
from qpriv.models.features import VisualFeatures
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import Encode
from qpriv.pruning.decision import PruningDecision
from qpriv.pruning.label import PolicyLabel
from qpriv.pruning.policy import NoPruning, PruningPolicy
from qpriv.split import Channel, RandomKey

from .observation import batches
from .victim import Victim

QueryPolicy = Literal["same", "off", "resampled"]
"""Which tokens the attacker's query keeps: the victim's own mask, all of them, or a random mask of
the same size drawn anew. Membership figures depend on it more than on most defences."""


@dataclass(frozen=True)
class Replies:
    """What the model returned for some questions and their gold answers, each ``[n]``.

    The fields are those of `AnswerScores`, which defines them exactly.
    """

    log_prob: NDArray[np.float64]
    mean_log_prob: NDArray[np.float64]
    confidence: NDArray[np.float64]
    entropy: NDArray[np.float64]
    correct: NDArray[np.float64]

    def features(self) -> NDArray[np.float64]:
        """Return the attack model's input of Shokri et al., ``[n, 4]``."""
        return np.stack([self.log_prob, self.confidence, self.entropy, self.correct], axis=1)

    def __getitem__(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Self:
        """Return some of the replies."""
        return type(self)(*(column[rows] for column in self.columns()))

    def columns(self) -> tuple[NDArray[np.float64], ...]:
        """Return the fields in order."""
        return self.log_prob, self.mean_log_prob, self.confidence, self.entropy, self.correct


class QueryAccess:
    """Counted queries to one model.

    Args:
        model: The model as it is now.
        policy: The victim's pruning policy.
        query_policy: Which tokens a query keeps.
        encode: The frozen encoders or a cache of them.
        seed: Seed of the masks that are drawn anew.
        batch_size: Questions asked at once.
        channel: What the model's answers cross; None asks the model as a whole.
        key: What a defence's random numbers depend on.
    """

    def __init__(
        self,
        model: VisionLanguageModel,
        policy: PruningPolicy,
        query_policy: QueryPolicy = "same",
        *,
        encode: Encode | None = None,
        seed: int = 0,
        batch_size: int = 64,
        channel: Channel | None = None,
        key: RandomKey | None = None,
    ) -> None:
        self.model, self.encode = model, encode or model.encode
        self.channel = None if channel is None or channel.hypothetical else channel
        self.key = key
        self.policy = through(policy, query_policy, seed)
        self.batch_size = batch_size
        self.count = 0

    @classmethod
    def of(cls, victim: Victim, query_policy: QueryPolicy = "same", *, seed: int = 0) -> Self:
        """Return access to a victim, whose answers cross its channel as they do in use.

        A defence acts, and a codec rounds, as where the run itself is evaluated.

        Args:
            victim: The victim.
            query_policy: Which tokens a query keeps.
            seed: Seed of the masks that are drawn anew.
        """
        return cls(
            victim.model,
            victim.policy,
            query_policy,
            encode=victim.encode,
            seed=seed,
            channel=victim.channel,
            key=RandomKey(victim.seed),
        )

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Let the model's answers cross the channel meanwhile."""
        with ExitStack() as stack:
            if self.channel is not None and self.channel.layers:
                stack.enter_context(self.channel.open(self.model, key=self.key))
            yield

    @torch.no_grad()
    def score(self, samples: Sequence[VQASample]) -> Replies:
        """Return how the model scores the gold answers of some samples."""
        columns: list[list[torch.Tensor]] = []
        for part in batches(samples, self.batch_size):
            batch = self.model.preprocessor(part).to(self.model.device)
            features = self.encode(batch, self.policy.needs)
            decision = self.policy.decide(features, part)
            with self.asking():
                scores = self.model.answer_log_probs(batch, features, decision)
            columns.append(
                [
                    scores.log_prob,
                    scores.mean_log_prob,
                    scores.first_confidence,
                    scores.first_entropy,
                    scores.correct,
                ]
            )
            self.count += len(part)
        joined = [torch.cat(column).cpu().double().numpy() for column in zip(*columns, strict=True)]
        return Replies(*joined)

    @torch.no_grad()
    def answer(self, samples: Sequence[VQASample], max_new_tokens: int = 10) -> list[str]:
        """Return the answers the model writes."""
        texts: list[str] = []
        for part in batches(samples, self.batch_size):
            batch = self.model.preprocessor(part).to(self.model.device)
            features = self.encode(batch, self.policy.needs)
            decision = self.policy.decide(features, part)
            with self.asking():
                texts += self.model.answer(batch, features, decision, max_new_tokens)
            self.count += len(part)
        return texts


def through(policy: PruningPolicy, query_policy: QueryPolicy, seed: int = 0) -> PruningPolicy:
    """Return the policy a query goes through."""
    if query_policy == "off":
        return NoPruning()
    return policy if query_policy == "same" else ResampledPruning(policy, seed)


def distinct(
    policy: PruningPolicy, queries: Sequence[QueryPolicy]
) -> dict[QueryPolicy, QueryPolicy]:
    """Return for each query policy the one whose replies are its own.

    Where the victim prunes nothing every query policy keeps every token: one question will do.

    >>> distinct(NoPruning(), ["same", "resampled"])
    {'same': 'off', 'resampled': 'off'}
    """
    return {query: "off" if isinstance(policy, NoPruning) else query for query in queries}


class ResampledPruning(PruningPolicy):
    """Keeps as many patches of each sample as another policy, but random ones, drawn anew.

    Args:
        policy: Decides how many.
        seed: Seed of the draws.
    """

    def __init__(self, policy: PruningPolicy, seed: int = 0) -> None:
        super().__init__()
        self.policy = policy
        self.needs = policy.needs
        self.generator = torch.Generator().manual_seed(seed)

    @property
    def name(self) -> PolicyLabel:
        """Return the other policy's label, marked as resampled."""
        label = self.policy.name
        return replace(label, settings=(*label.settings, "resampled"))

    def decide(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        """Return random patches, in the number the other policy keeps."""
        decision = self.policy.decide(features, samples)
        if decision.inside is not None:
            decision = replace(decision, inside=ResampledStages(decision.inside, self.generator))
        if decision.merged is not None or decision.mixing is not None:
            return decision  # merged tokens are made of all patches: there is nothing to redraw
        kept = tuple(
            _draw(decision.num_patches, places, self.generator) for places in decision.kept
        )
        return replace(decision, kept=kept)


class ResampledStages:
    """Lets as many tokens go on behind each stage as another pruner, but random ones.

    Args:
        pruner: Decides how many.
        generator: Draws them.
    """

    def __init__(self, pruner: StagePruner, generator: torch.Generator) -> None:
        self.pruner, self.generator = pruner, generator
        self.stages, self.positions = pruner.stages, pruner.positions
        self.adapters, self.restarts = pruner.adapters, pruner.restarts

    def choose(self, number: int, view: StageView) -> StageChoice:
        """Return random tokens, in the number the other pruner keeps."""
        choice = self.pruner.choose(number, view)
        if choice.merging is not None:
            return choice
        return StageChoice(_draw(len(view.patches), choice.kept, self.generator))


def _draw(count: int, kept: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return as many random indices below a count as are kept, sorted."""
    order = torch.randperm(count, generator=generator)[: len(kept)]
    return order.sort().values.to(kept.device)
