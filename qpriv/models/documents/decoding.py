"""Small parts of generation that every family needs."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList


class GreedySettings(TypedDict):
    """Keyword arguments of the library's ``generate`` that all families share."""

    pad_token_id: int
    eos_token_id: list[int]
    bad_words_ids: list[list[int]]
    num_beams: int
    num_return_sequences: int
    logits_processor: LogitsProcessorList


def buckets(lengths: Sequence[int], size: int = 256) -> list[list[int]]:
    """Return the numbers of rows, grouped by equal length and at most ``size`` together.

    >>> buckets([3, 5, 3])
    [[0, 2], [1]]
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for row, length in enumerate(lengths):
        groups[length].append(row)
    return [
        rows[start : start + size]
        for _, rows in sorted(groups.items())
        for start in range(0, len(rows), size)
    ]


def kept_tokens(new: Sequence[int], ends: set[int]) -> tuple[list[int], bool]:
    """Return the tokens before the first end marker, and whether there was one.

    >>> kept_tokens([7, 8, 2, 1, 1], {2})
    ([7, 8], True)
    """
    for position, token in enumerate(new):
        if token in ends:
            return list(new[:position]), True
    return list(new), False


class BannedBeginnings(LogitsProcessor):  # type: ignore[misc]
    """Keeps an answer from beginning with certain tokens: the last of each is forbidden.

    Args:
        beginnings: The banned beginnings as token ids.
        prompt_length: Tokens before the answer.
    """

    def __init__(self, beginnings: Sequence[Sequence[int]], prompt_length: int) -> None:
        self.beginnings = [list(beginning) for beginning in beginnings]
        self.prompt_length = prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores with the banned next tokens at minus infinity."""
        so_far = input_ids[:, self.prompt_length :]
        scores = scores.clone()
        for beginning in self.beginnings:
            if so_far.shape[1] != len(beginning) - 1:
                continue
            head = torch.tensor(beginning[:-1], device=so_far.device, dtype=so_far.dtype)
            begun = (so_far == head).all(dim=1)
            scores[begun, beginning[-1]] = -torch.inf
        return scores


def banned_beginnings(
    beginnings: Sequence[Sequence[int]], prompt_length: int
) -> LogitsProcessorList:
    """Return the processors that keep answers from beginning with certain tokens."""
    if not beginnings:
        return LogitsProcessorList()
    return LogitsProcessorList([BannedBeginnings(beginnings, prompt_length)])
