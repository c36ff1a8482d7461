"""Several questions about one image in one sequence, exactly equal to one sequence each.

``<s> user : <image>*k`` is followed by ``question assistant : answer </s>`` segments. A segment
sees the image and itself, and its positions start where the image ends: the layout of a single
question, compact after pruning, at a quarter of the cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PREFIX = "USER: <image>"
SEGMENT = "{question} ASSISTANT: {answer}</s>"
ANSWER_LENGTH = 2
"""A segment ends with its one-word answer and the end token: what the loss is taken over."""


@dataclass(frozen=True)
class Packed:
    """A batch of packed sequences.

    Args:
        input_ids: ``[B, S]``, right-padded with 0.
        position_ids: ``[B, S]``.
        mask: What each token sees, to be added to the attention scores, ``[B, 1, S, S]``.
        rows: Row of each position whose next token is to be predicted, ``[M]``.
        columns: Its column, ``[M]``.
        targets: The token to predict, ``[M]``.
    """

    input_ids: Tensor
    position_ids: Tensor
    mask: Tensor
    rows: Tensor
    columns: Tensor
    targets: Tensor


def pack(prefix: Sequence[int], segments: Sequence[Sequence[Sequence[int]]]) -> Packed:
    """Pack the segments of every image behind the same prefix.

    Args:
        prefix: Tokens up to and including the image.
        segments: For every image its segments, each ending in answer and end token.
    """
    rows = [_row(list(prefix), some) for some in segments]
    ids, positions, owners = (_stack([row[part] for row in rows]) for part in range(3))
    same = (owners[:, :, None] == owners[:, None]) | (owners[:, None] == 0)
    causal = torch.ones(same.shape[1:], dtype=torch.bool).tril()
    mask = torch.zeros(same.shape).masked_fill(~(same & causal), torch.finfo(torch.float32).min)
    predicts = [(number, column) for number, row in enumerate(rows) for column in row[3]]
    where, column = torch.tensor(predicts, dtype=torch.long).view(-1, 2).T
    return Packed(ids, positions, mask[:, None], where, column, ids[where, column + 1])


def _row(
    prefix: list[int], segments: Sequence[Sequence[int]]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return tokens, positions, segment numbers and predicting columns of one image."""
    ids, positions, owners = list(prefix), list(range(len(prefix))), [0] * len(prefix)
    columns: list[int] = []
    for number, segment in enumerate(segments, start=1):
        ids += segment
        positions += range(len(prefix), len(prefix) + len(segment))
        owners += [number] * len(segment)
        columns += range(len(ids) - ANSWER_LENGTH - 1, len(ids) - 1)
    return ids, positions, owners, columns


def _stack(rows: Sequence[Sequence[int]]) -> Tensor:
    """Pad with zeros; a padded token counts as prefix, which nothing that is scored can see."""
    length = max(len(row) for row in rows)
    return torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
