"""Small parts of generation that every family needs."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypedDict


class GreedySettings(TypedDict):
    """Keyword arguments of the library's ``generate`` that all families share."""

    pad_token_id: int
    eos_token_id: list[int]
    bad_words_ids: list[list[int]]
    num_beams: int
    num_return_sequences: int


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
