"""`PruningDecision`: which visual tokens of each sample stay, and why."""

from dataclasses import dataclass

import torch
from torch import Tensor

from qpriv.errors import ModelError


@dataclass(frozen=True)
class PruningDecision:
    """The kept patches of a batch.

    Args:
        kept: For each sample the indices of the kept patches, sorted and unique, ``[k_b]`` int64.
        num_patches: Number of patches ``N`` before pruning.
        ratio: The pruning ratio rho that was asked for, ``[B]``, in [0, 1].
        utility: Utility u of every patch, ``[B, N]``, in (0, 1); None where a policy has none.
        sensitivity: Sensitivity s of every patch on the CLIP grid, ``[B, N]``, in (0, 1), or None.
        score: The score the patches were ranked by, ``[B, N]``, or None.
        merged: Features that replace the kept patches where a method merges, each ``[k_b, D]``.

    Raises:
        ModelError: If kept indices are not sorted, unique and within the patches: anything else
            would put features at the wrong places without a sign.
    """

    kept: tuple[Tensor, ...]
    num_patches: int
    ratio: Tensor
    utility: Tensor | None = None
    sensitivity: Tensor | None = None
    score: Tensor | None = None
    merged: tuple[Tensor, ...] | None = None

    def __post_init__(self) -> None:
        """Check the kept indices."""
        for row, indices in enumerate(self.kept):
            inside = len(indices) == 0 or (
                0 <= int(indices[0]) and int(indices[-1]) < self.num_patches
            )
            if not inside or bool((indices.diff() <= 0).any()):
                raise ModelError(
                    f"kept patches of row {row} are not sorted, unique and below {self.num_patches}"
                )

    def __len__(self) -> int:
        """Return the number of samples ``B``."""
        return len(self.kept)

    @property
    def counts(self) -> Tensor:
        """Return the number of kept patches of each sample, ``[B]`` int64."""
        return torch.tensor([len(indices) for indices in self.kept])

    @property
    def mask(self) -> Tensor:
        """Return True where a patch is kept, ``[B, N]``.

        >>> PruningDecision((torch.tensor([0, 2]),), 3, torch.tensor([0.3])).mask.tolist()
        [[True, False, True]]
        """
        mask = torch.zeros(len(self.kept), self.num_patches, dtype=torch.bool)
        for row, indices in enumerate(self.kept):
            mask[row, indices.cpu()] = True
        return mask
