"""Utility branch: how well a patch answers the question (source section 3)."""

import math

import torch
from torch import Tensor, nn

from qpriv.models.features import FeatureSizes
from qpriv.models.precision import new_tensors


class UtilityScorer(nn.Module):
    """``u = sigmoid(q . k / sqrt(P))`` of unbiased projections of question and patches.

    Args:
        patch_dim: Values ``D`` of a patch (1024 for CLIP-L).
        question_dim: Values ``Dt`` of the question vector (768 for CLIP-L).
        projection_dim: Values ``P`` of both projections (256 in the source).
    """

    def __init__(
        self, patch_dim: int = 1024, question_dim: int = 768, projection_dim: int = 256
    ) -> None:
        super().__init__()
        self.query = nn.Linear(question_dim, projection_dim, bias=False)
        self.key = nn.Linear(patch_dim, projection_dim, bias=False)

    def forward(self, patches: Tensor, question: Tensor) -> Tensor:
        """Return the utility of every patch, ``[B, N]`` in (0, 1).

        Args:
            patches: Patch features, ``[B, N, D]``.
            question: Question vectors, ``[B, Dt]``.
        """
        query, keys = self.query(question), self.key(patches)
        agreement = torch.einsum("bp,bnp->bn", query, keys)
        return torch.sigmoid(agreement / math.sqrt(query.shape[-1]))


def scaled_projection_dim(patch_dim: int) -> int:
    """Return ``P`` for a width: a quarter of it as in the source (1024 to 256), at least 32."""
    return max(32, patch_dim // 4)


@new_tensors(torch.float32)
def random_scorer(sizes: FeatureSizes, seed: int = 0) -> UtilityScorer:
    """Return the source's fixed, randomly initialised scorer, equal for equal seeds."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        scorer = UtilityScorer(sizes.patch, sizes.question, scaled_projection_dim(sizes.patch))
    return scorer.requires_grad_(False)
