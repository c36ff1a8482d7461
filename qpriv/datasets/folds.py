"""Draws and folds by image (or patient): what shares a group never parts.

Every draw ranks the groups by a hash of seed, purpose and group name. It therefore does not
depend on the order of the files, on the process that computes it or on how many rows a group
has, and two purposes with one seed are independent.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeVar

from .sample import VQASample

T = TypeVar("T")


def group_rank(group: str, seed: int, purpose: str) -> int:
    """Return a group's place in a seeded order of all groups, 0 to 2^64 - 1.

    >>> group_rank("image 7", seed=0, purpose="cap") == group_rank("image 7", 0, "cap")
    True
    """
    digest = blake2b(group.encode(), digest_size=8, key=f"{seed}/{purpose}".encode()[:64])
    return int.from_bytes(digest.digest(), "big")


def sample_by_group(
    rows: Iterable[tuple[str, T]], cap: int | None, seed: int, purpose: str = "cap"
) -> list[T]:
    """Return at most ``cap`` rows: all those of the groups that rank first, the last group cut.

    Reads the rows once and holds little more than ``cap`` of them.

    Args:
        rows: Pairs of group and row.
        cap: Number of rows to return where there are as many; all where None.
        seed: Seed of the draw.
        purpose: Name of the draw; draws of other purposes are independent.

    Returns:
        The drawn rows in the order they came.

    >>> rows = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)]
    >>> sample_by_group(rows, cap=2, seed=0) in ([1, 3], [2, 5], [2, 4], [1, 4], [3, 4], [4, 5])
    True
    """
    if cap is None:
        return [row for _, row in rows]
    held: dict[str, tuple[int, list[tuple[int, T]]]] = {}
    worst: list[tuple[int, str]] = []  # held groups, last rank first
    bound, total = 1 << 64, 0
    for index, (group, row) in enumerate(rows):
        if group in held:
            held[group][1].append((index, row))
        else:
            rank = group_rank(group, seed, purpose)
            if rank >= bound:
                continue
            held[group] = (rank, [(index, row)])
            heapq.heappush(worst, (-rank, group))
        total += 1
        while total - len(held[worst[0][1]][1]) >= cap:
            # the other groups fill the cap: this one, and any behind it, can never be drawn
            rank, name = heapq.heappop(worst)
            bound = -rank
            total -= len(held.pop(name)[1])
    drawn = [pair for _, pairs in sorted(held.values(), key=lambda item: item[0]) for pair in pairs]
    return [row for _, row in sorted(drawn[:cap], key=lambda pair: pair[0])]


def assign_groups(
    groups: Iterable[str], shares: Mapping[str, float], seed: int, purpose: str
) -> dict[str, str]:
    """Return the split of every group, for releases that come without one.

    Args:
        groups: Names of the groups, in any order and as often as they occur.
        shares: Share of the groups for each split, in sum 1. A split with a share above 0 gets a
            group at least, where there are enough.
        seed: Seed of the division.
        purpose: Name of the division, such as the set's; others are independent.

    >>> sorted(assign_groups("aabbc", {"train": 0.9, "val": 0.1}, 0, "doc").values())
    ['train', 'train', 'val']
    """
    names = [name for name, share in shares.items() if share > 0]
    distinct = set(groups)
    ranked = sorted(distinct, key=lambda group: (group_rank(group, seed, purpose), group))
    split_of: dict[str, str] = {}
    start, share = 0, 0.0
    for place, name in enumerate(names, start=1):
        share += shares[name]
        stop = max(round(share * len(ranked)), start + 1)
        stop = min(stop, max(len(ranked) - (len(names) - place), start))
        split_of.update(dict.fromkeys(ranked[start:stop], name))
        start = stop
    return split_of


def split_by_group(
    samples: Sequence[VQASample], shares: Sequence[float], seed: int, purpose: str = "fold"
) -> list[list[VQASample]]:
    """Return folds of the samples such that no group is in two of them.

    Args:
        samples: The samples to part.
        shares: Share of the groups for each fold; they sum to 1 or less, and what is left is in
            no fold.
        seed: Seed of the folds.
        purpose: Name of the division, such as ``members``; others are independent.

    Raises:
        ValueError: If a share is negative, or their sum is above 1.

    >>> split_by_group([], [0.5, 0.5], seed=0)
    [[], []]
    """
    if min(shares) < 0 or sum(shares) > 1 + 1e-9:
        raise ValueError(f"shares {list(shares)} are not parts of 1")
    groups = {sample.group_id for sample in samples}
    ranked = sorted(groups, key=lambda group: (group_rank(group, seed, purpose), group))
    fold_of: dict[str, int] = {}
    start, share = 0, 0.0
    for fold, part in enumerate(shares):
        share += part
        stop = round(share * len(ranked))
        fold_of.update(dict.fromkeys(ranked[start:stop], fold))
        start = stop
    folds: list[list[VQASample]] = [[] for _ in shares]
    for sample in samples:
        if (number := fold_of.get(sample.group_id)) is not None:
            folds[number].append(sample)
    return folds


def shared_groups(one: Iterable[VQASample], other: Iterable[VQASample]) -> set[str]:
    """Return the groups (images, patients) that have samples in both."""
    return {sample.group_id for sample in one} & {sample.group_id for sample in other}
