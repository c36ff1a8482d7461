"""`TokenGrid`: image tokens that crossed a cut, on the grid of patches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from qpriv.errors import ConfigError


@dataclass(frozen=True)
class TokenGrid:
    """Ragged image tokens as one padded tensor.

    Args:
        tokens: ``[n, N, d]``; zero in empty cells. With known positions, each token is in the cell
            of its patch; otherwise the tokens are spread evenly in their order.
        present: True in cells with a token, ``[n, N]``.
    """

    tokens: Tensor
    present: Tensor

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.tokens)

    def __getitem__(self, rows: Tensor | slice) -> Self:
        """Return some of the pictures."""
        return type(self)(self.tokens[rows], self.present[rows])


def to_grid(rows: Sequence[Tensor], places: Sequence[Tensor] | None, num_patches: int) -> TokenGrid:
    """Return ragged tokens on the grid.

    Tokens cross in the order of their patches. If their patches are unknown, they are spread
    evenly. This is exact without pruning, and nearly right if all regions lose equal shares.

    Args:
        rows: Tokens of each picture, ``[k_i, d]``.
        places: Patch of each token, ``[k_i]``; None if the attacker does not know.
        num_patches: Number of patches ``N``.

    Raises:
        ConfigError: If places are given and a token merges several patches.

    >>> to_grid([torch.ones(1, 2)], [torch.tensor([2])], 3).present.tolist()
    [[False, False, True]]
    """
    width = rows[0].shape[1] if rows else 0
    tokens = torch.zeros(len(rows), num_patches, width)
    present = torch.zeros(len(rows), num_patches, dtype=torch.bool)
    for number, row in enumerate(rows):
        if places is not None and not _is_placed(row, places[number]):
            raise ConfigError(
                "a merged token has no place on the grid that an attacker could know",
                where="knows_positions",
                remedy="set it to false",
            )
        spread = (torch.arange(len(row)) * num_patches + num_patches // 2) // max(len(row), 1)
        cells = spread if places is None else places[number].cpu()
        tokens[number, cells] = row.float()
        present[number, cells] = True
    return TokenGrid(tokens, present)


def _is_placed(row: Tensor, places: Tensor) -> bool:
    return len(row) == len(places) and not bool((places < 0).any())
