"""`AnswerScores`: how sure a generative model is of an answer, defined exactly."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .decoder.sequences import IGNORED


@dataclass(frozen=True)
class AnswerScores:
    """Teacher-forced scores of the gold answers, the signals of membership attacks.

    With answer tokens ``a_1 .. a_n``, the last of which is the end token, and the pruned prompt
    ``x``; all logarithms are natural, all tensors float32 of shape ``[B]`` if not said otherwise.

    Args:
        log_prob: ``sum_i log p(a_i | x, a_<i)``.
        mean_log_prob: ``log_prob / n``, minus the sample's training loss.
        num_tokens: ``n``, int64.
        first_log_prob: ``log p(a_1 | x)``.
        first_confidence: ``max_v p(v | x)``, the confidence in whatever the model says first;
            needs no gold answer.
        first_entropy: ``-sum_v p(v | x) log p(v | x)``, in nats; needs no gold answer.
        correct: Whether ``a_i`` is the likeliest token at every position. This holds exactly if
            greedy decoding writes the gold answer and stops. bool.
        kept: For each row which of its tokens were not withdrawn at a cut; None is all of them.
    """

    log_prob: Tensor
    mean_log_prob: Tensor
    num_tokens: Tensor
    first_log_prob: Tensor
    first_confidence: Tensor
    first_entropy: Tensor
    correct: Tensor
    kept: tuple[Tensor, ...] | None = None


def score_answers(hidden: Tensor, labels: Tensor, head: nn.Module) -> AnswerScores:
    """Score the labelled tokens of each row.

    Args:
        hidden: Decoder outputs, ``[B, S, d]``.
        labels: Gold ids, -100 where there is none; every row has at least one, ``[B, S]``.
        head: Maps decoder outputs to scores of the next token.
    """
    targets = labels[:, 1:]
    answered = targets != IGNORED
    gold = targets[answered]
    logits = head(hidden[:, :-1][answered]).float()
    log_probs = logits.log_softmax(dim=-1)
    gold_log_probs = log_probs.gather(1, gold[:, None]).squeeze(1)
    right = (logits.argmax(dim=-1) == gold).long()

    counts = answered.sum(dim=1)
    rows = answered.nonzero()[:, 0]
    first = counts.cumsum(dim=0) - counts
    zeros = gold_log_probs.new_zeros(len(labels))
    total = zeros.index_add(0, rows, gold_log_probs)
    opening = log_probs[first]
    return AnswerScores(
        log_prob=total,
        mean_log_prob=total / counts,
        num_tokens=counts,
        first_log_prob=gold_log_probs[first],
        first_confidence=opening.amax(dim=-1).exp(),
        first_entropy=torch.special.entr(opening.exp()).sum(dim=-1),
        correct=zeros.long().index_add(0, rows, right) == counts,
    )
