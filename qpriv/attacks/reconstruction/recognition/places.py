"""`Placer`: on which patch does a token lie, where the message does not say so?

Position embeddings survive in tokens. Linear discriminant analysis, learned on the attacker's own tokens,
whose places it knows, tells the cell of each; tokens cross in the order of their patches, so the
likeliest assignment that keeps the order is found by dynamic programming.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qpriv.models.precision import full_precision

from ...token_grid import TokenGrid, to_grid


@dataclass(frozen=True)
class Placer:
    """A linear classifier of cells.

    Args:
        weight: ``[d, N]``.
        bias: ``[N]``.
    """

    weight: Tensor
    bias: Tensor

    @classmethod
    @full_precision()
    def fit(cls, known: TokenGrid) -> "Placer":
        """Learn it from tokens whose places are known: one Gaussian a cell, of common shape."""
        cells = known.present.nonzero()[:, 1]
        tokens, count = known.tokens[known.present].double(), known.present.shape[1]
        members = torch.bincount(cells, minlength=count).double()
        sums = tokens.new_zeros(count, tokens.shape[1]).index_add_(0, cells, tokens)
        # a cell that was rarely seen looks like an average one, and is an unlikely guess
        means = (sums + tokens.mean(dim=0)) / (members[:, None] + 1)
        within = tokens - means[cells]
        covariance = within.T @ within / len(within)
        covariance += 1e-4 * covariance.diagonal().mean() * torch.eye(len(covariance)).double()
        weight = torch.linalg.solve(covariance, means.T)
        likely = ((members + 1) / (len(tokens) + count)).log()
        bias = likely - (means.T * weight).sum(dim=0) / 2
        return cls(weight.float(), bias.float())

    @full_precision()
    def place(self, rows: Sequence[Tensor]) -> TokenGrid:
        """Return tokens ``[k_i, d]`` that came in order, on the grid."""
        places = [in_order(row.float() @ self.weight + self.bias) for row in rows]
        return to_grid(rows, places, len(self.bias))


def in_order(scores: Tensor) -> Tensor:
    """Return the ascending cells of greatest total score, ``[k]``, for scores ``[k, N]``.

    >>> in_order(torch.tensor([[0.0, 1.0, 0.9], [0.0, 2.0, 1.5]])).tolist()
    [1, 2]
    """
    count, cells = scores.shape
    best = scores.new_zeros(cells + 1)  # best[j]: total of the tokens so far within j cells
    choices = []
    for row in scores:
        with_this = torch.cat([best.new_full((1,), -torch.inf), best[:-1] + row])
        best, chosen = with_this.cummax(dim=0)
        choices.append(chosen)
    places, end = [], cells
    for chosen in reversed(choices):
        end = int(chosen[end]) - 1
        places.append(end)
    return torch.tensor(places[::-1], dtype=torch.long).reshape(count)
