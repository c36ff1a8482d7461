"""Candidate ranking: does a model prefer the true answer although it does not say it?

A model that has learned to abstain may still remember. Its preference among answers of the same
kind shows it: the exposure of Carlini et al. 2019 (arXiv 1802.08232), log2 of the number of
candidates minus log2 of the true answer's rank.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from qpriv.attacks.extraction.asking import encode
from qpriv.attacks.extraction.contexts import ERASED, CanarySet, Context
from qpriv.models.documents.base import DocumentModel


@dataclass(frozen=True)
class Ranking:
    """Where the true answer of a canary came among the candidates.

    Args:
        rank: 1 is the most likely; ties count against the attacker.
        candidates: Number of candidates, the true answer included.
    """

    rank: int
    candidates: int

    @property
    def exposure(self) -> float:
        """Return the exposure in bits: 0 for the last rank, log2 of the candidates for the first.

        >>> Ranking(1, 8).exposure
        3.0
        """
        return math.log2(self.candidates) - math.log2(self.rank)


def decoys_of(canaries: CanarySet, number: int) -> list[str]:
    """Return the answers of all canaries of the same kind, the true one first.

    Only canaries: a model has seen each of them as a target equally often, so it prefers none
    unless it remembers the page. Answers from elsewhere would be told apart by being unseen.
    """
    true = canaries.canaries[number]
    same = (c.answer for c in canaries.canaries if c.pii == true.pii)
    return list(dict.fromkeys((true.answer, *same)))


def rank_candidates(
    model: DocumentModel,
    canaries: CanarySet,
    context: Context = ERASED,
    rows: Sequence[int] | None = None,
    batch_size: int = 256,
    seed: int = 0,
) -> list[Ranking]:
    """Return the rank of each canary's answer among the answers of its kind.

    Candidates are compared by log-probability per token, since they differ in length.

    Args:
        model: The attacked model; left in evaluation mode.
        canaries: The canaries.
        context: How they are asked for.
        rows: Numbers of the canaries; all where None.
        batch_size: Candidates a forward pass.
        seed: Seed of the context.
    """
    model.eval()
    wanted = set(range(len(canaries.canaries)) if rows is None else rows)
    rankings = []
    for number, query in enumerate(canaries.queries(context, seed)):
        if number not in wanted:
            continue
        candidates = decoys_of(canaries, number)
        scores: list[float] = []
        with torch.no_grad():
            pages = encode(model, [query.image], [query.question])
            for start in range(0, len(candidates), batch_size):
                part = candidates[start : start + batch_size]
                tokens = model.tokenise([query.question] * len(part), part)
                same = torch.zeros(len(part), dtype=torch.long, device=model.device)
                logits = model.logits(pages.for_rows(same), tokens)
                lengths = [len(model.answer_ids(text)) + 1 for text in part]
                log_probs = model.replies(logits, tokens).log_prob.tolist()
                scores += [p / n for p, n in zip(log_probs, lengths, strict=True)]
        rank = 1 + sum(score >= scores[0] for score in scores[1:])
        rankings.append(Ranking(rank, len(candidates)))
    return rankings
