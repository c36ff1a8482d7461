"""Padding of messages to buckets, which hides the number of kept tokens from eavesdroppers.

The size of an encrypted message reveals how many tokens it holds, and so how much of the image
was pruned. A message padded to the next multiple of a bucket reveals only the bucket. The receiver
still learns the true length, because it needs the attention mask. The server therefore always
learns the number ``k`` of kept tokens; only a constant ``k`` hides it from the server.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from qpriv.errors import ConfigError


def check_bucket(bucket: int) -> None:
    """Check a bucket size.

    Raises:
        ConfigError: If it is below 1.
    """
    if bucket < 1:
        raise ConfigError(f"bucket is {bucket}", remedy="choose 1 (no filling) or more tokens")


def filled(length: int, bucket: int) -> int:
    """Return the number of tokens that are sent for ``length`` real ones.

    >>> [filled(length, 16) for length in (0, 1, 16, 17)]
    [0, 16, 16, 32]
    """
    return -(-length // bucket) * bucket


def padding_cost(lengths: Sequence[int], bucket: int) -> int:
    """Return the number of padding tokens that are sent.

    >>> padding_cost([30, 33], 16)
    17
    """
    return sum(filled(length, bucket) - length for length in lengths)


def fill_rows(rows: Tensor, lengths: Tensor, bucket: int, filler: int = 0) -> Tensor:
    """Return the tokens of a batch as they are sent: each sample padded to its bucket.

    Args:
        rows: Real tokens, one sample after another, ``[sum T_i, ...]``.
        lengths: Real tokens of each sample, ``[B]``.
        bucket: Lengths are padded to multiples of this number.
        filler: Value of the padding.

    >>> fill_rows(torch.tensor([1, 2, 3]), torch.tensor([1, 2]), 2).tolist()
    [1, 0, 2, 3]
    """
    if bucket == 1:
        return rows
    behind = (0, 0) * (rows.dim() - 1)
    pieces = [
        pad(piece, (*behind, 0, filled(len(piece), bucket) - len(piece)), value=filler)
        for piece in torch.split(rows, lengths.tolist())
    ]
    return torch.cat(pieces)


def strip_rows(rows: Tensor, lengths: Tensor, bucket: int) -> Tensor:
    """Return the real tokens among those that `fill_rows` returned.

    >>> strip_rows(torch.tensor([1, 0, 2, 3]), torch.tensor([1, 2]), 2).tolist()
    [1, 2, 3]
    """
    if bucket == 1:
        return rows
    sizes = [filled(length, bucket) for length in lengths.tolist()]
    pieces = zip(torch.split(rows, sizes), lengths.tolist(), strict=True)
    return torch.cat([piece[:length] for piece, length in pieces])
