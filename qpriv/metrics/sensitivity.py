"""What pruning does to the sensitive part: SER, and how much of it crosses."""

import torch
from torch import Tensor
from torchmetrics import Metric

from qpriv.errors import ModelError
from qpriv.pruning.decision import PruningDecision


def sensitivity_exclusion_ratio(sensitivity: Tensor, mask: Tensor) -> Tensor:
    """Return mean sensitivity of the pruned patches / that of the kept ones, per sample.

    Above 1 sensitive patches go first. It is no evidence of privacy by itself: it says how the
    scores are spread over the two sides, not whether anything sensitive is left.

    Args:
        sensitivity: Scores s in (0, 1), ``[B, N]``.
        mask: True where a patch is kept, ``[B, N]``.

    Returns:
        Ratios ``[B]``; NaN where nothing was pruned or nothing kept.

    >>> sensitivity_exclusion_ratio(
    ...     torch.tensor([[0.25, 0.5]]), torch.tensor([[True, False]])
    ... ).tolist()
    [2.0]
    """
    kept = mask.to(sensitivity.dtype)
    pruned = 1 - kept
    inside = (sensitivity * kept).sum(dim=1) / kept.sum(dim=1)
    outside = (sensitivity * pruned).sum(dim=1) / pruned.sum(dim=1)
    return outside / inside


def surviving_share(sensitive: Tensor, mask: Tensor) -> Tensor:
    """Return the share of sensitive patches that is kept, per sample.

    Args:
        sensitive: True where a patch is sensitive in truth, ``[B, N]``.
        mask: True where a patch is kept, ``[B, N]``.

    Returns:
        Shares ``[B]``; NaN where a sample has no sensitive patch.

    >>> surviving_share(torch.tensor([[True, True, False]]), torch.tensor([[True, False, True]]))
    tensor([0.5000])
    """
    return (sensitive & mask).sum(dim=1) / sensitive.sum(dim=1)


def sensitive_mass(sensitive: Tensor, decision: PruningDecision) -> Tensor:
    """Return the share of what crosses that comes of sensitive patches, per sample.

    A merged token is a mixture of patches: the weights of sensitive ones count, over all weights
    of all tokens (absolute values). Where nothing is merged every kept patch weighs one. A token
    that is no mixture, such as the class token, has no weights and does not count.

    Args:
        sensitive: True where a patch is sensitive in truth, ``[B, N]``.
        decision: What crosses.

    Returns:
        Shares ``[B]``; 0 where nothing crosses, NaN where a sample has no sensitive patch.

    Raises:
        ModelError: If tokens are merged and nothing says of what.

    >>> halves = (torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]),)
    >>> kept = (torch.tensor([0, 3]),)
    >>> merging = PruningDecision(kept, 4, torch.tensor([0.5]), mixing=halves)
    >>> sensitive_mass(torch.tensor([[True, False, False, False]]), merging).tolist()
    [0.25]
    """
    if decision.merged is not None and decision.mixing is None:
        raise ModelError(
            "a policy merges tokens and does not say of which patches",
            remedy="give the weights: PruningDecision(mixing=...)",
        )
    weights = decision.mask.double()
    if decision.mixing is not None:
        weights = torch.stack(
            [rows.detach().cpu().double().abs().sum(0) for rows in decision.mixing]
        )
    truth = sensitive.cpu()
    mass = (weights * truth).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-12)
    return mass.where(truth.any(dim=1), torch.nan)


class SensitivityExclusionRatio(Metric):
    """SER over a data set: the mean of the per-sample ratios, or the pooled ratio.

    Samples from which nothing was pruned have no ratio and do not count; without any other the
    figure is NaN (a policy that is off).

    Args:
        pooled: Put all patches of all samples together instead of averaging ratios.
        across_ranks: Add up what all processes have seen; one that measures alone would wait for
            the others for ever.
    """

    full_state_update = False
    sums: Tensor

    def __init__(self, *, pooled: bool = False, across_ranks: bool = True) -> None:
        super().__init__(sync_on_compute=across_ranks)
        self.pooled = pooled
        # pooled: sum and number of pruned, sum and number of kept; else: sum and number of ratios
        self.add_state("sums", torch.zeros(4, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, decision: PruningDecision) -> None:
        """Add a batch of decisions; those without sensitivity scores do not count."""
        if decision.sensitivity is None:
            return
        sensitivity = decision.sensitivity.detach().cpu().double()
        self.sums += self._sums(sensitivity, decision.mask).to(self.sums.device)

    def _sums(self, sensitivity: Tensor, mask: Tensor) -> Tensor:
        if self.pooled:
            parts = (sensitivity[~mask], sensitivity[mask])
            return torch.stack([value for p in parts for value in (p.sum(), _count(p))])
        ratios = sensitivity_exclusion_ratio(sensitivity, mask)
        known = ratios[ratios.isfinite()]
        return torch.stack([known.sum(), _count(known), *torch.zeros(2).double()])

    def compute(self) -> Tensor:
        """Return the ratio, NaN where no sample has one."""
        pruned, pruned_count, kept, kept_count = self.sums
        ratio: Tensor = pruned / pruned_count
        return ratio / (kept / kept_count) if self.pooled else ratio


def _count(values: Tensor) -> Tensor:
    return torch.tensor(float(values.numel()), dtype=torch.float64)
