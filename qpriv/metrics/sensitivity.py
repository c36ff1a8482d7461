"""What pruning does to the sensitive part: SER, and how much of it crosses."""

import torch
from torch import Tensor
from torchmetrics import Metric

from qpriv.declaration import Row
from qpriv.errors import ModelError
from qpriv.pruning.decision import PruningDecision
from qpriv.quantity import Quantity

ROW = Row(
    what="what pruning keeps, `SensitivityProbe`",
    who="nobody",
    holds="nothing",
    knows="",
    measures="what of the sensitive part crosses, SER, bytes",
    beside="",
    source="",
)
SER = Quantity(
    name="sensitivity_exclusion_ratio",
    title="SER",
    meaning="Mean sensitivity of dropped over kept patches, mean over images; above 1 sensitive "
    "patches go first. No evidence of privacy by itself.",
    chance=1.0,
    headline=True,
    caution="no evidence of privacy",
)
SER_POOLED = Quantity(
    name="sensitivity_exclusion_ratio_pooled",
    title="SER, pooled",
    meaning="The same over all patches of all images.",
)
TOKENS_KEPT = Quantity(
    name="sensitive_tokens_kept",
    title="Sensitive tokens surviving",
    label="Sensitive tokens",
    meaning="Share of the tokens at least half in a sensitive box that still leave the client; "
    "where none does, patches that touch a box may.",
    direction="leak",
    headline=True,
    question="sensitive tokens",
    by="the image's own question",
)
TOKENS_TOUCHING = Quantity(
    name="sensitive_tokens_touching",
    title="Touching tokens surviving",
    meaning="The same of all tokens that touch a sensitive box.",
    direction="leak",
)
AREA_VISIBLE = Quantity(
    name="sensitive_area_visible",
    title="Sensitive area visible",
    meaning="Share of the sensitive pixels that lie in a patch that crossed.",
    direction="leak",
)
FACES_TOUCHED = Quantity(
    name="faces_touched",
    title="Faces touched",
    meaning="Share of the sensitive boxes of which any pixel lies in a patch that crossed.",
    direction="leak",
)
MASS = Quantity(
    name="sensitive_mass",
    title="Sensitive mass",
    meaning="Share of what crosses that comes of sensitive patches, by the weights with which "
    "patches enter tokens.",
    direction="leak",
)
SENSITIVITY = (SER, SER_POOLED, TOKENS_KEPT, TOKENS_TOUCHING, AREA_VISIBLE, FACES_TOUCHED, MASS)
"""Figures of `SensitivityProbe`: how patches are ranked, and what of the sensitive part crosses."""

SENSITIVE_COVERAGE = 0.5
"""A patch is sensitive if at least this share of it lies in a sensitive box."""


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
    weights = crossing_weights(decision)
    truth = sensitive.cpu()
    mass = (weights * truth).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-12)
    return mass.where(truth.any(dim=1), torch.nan)


def crossing_weights(decision: PruningDecision) -> Tensor:
    """Return with which weight each patch enters what crosses, ``[B, N]``; 0 where it does not.

    Raises:
        ModelError: If tokens are merged and nothing says of what.
    """
    if decision.merged is not None and decision.mixing is None:
        raise ModelError(
            "a policy merges tokens and does not say of which patches",
            remedy="give the weights: PruningDecision(mixing=...)",
        )
    if decision.mixing is None:
        return decision.mask.double()
    return torch.stack([rows.detach().cpu().double().abs().sum(0) for rows in decision.mixing])


def visible_area(coverage: Tensor, mask: Tensor) -> Tensor:
    """Return the share of the sensitive area that lies in crossed patches, per sample.

    Args:
        coverage: Share of each patch that is sensitive, ``[B, N]`` in [0, 1].
        mask: True where a patch crossed, ``[B, N]``.

    Returns:
        Shares ``[B]``; NaN where a sample has no sensitive area.

    >>> visible_area(torch.tensor([[0.5, 1.0, 0.5]]), torch.tensor([[True, False, False]]))
    tensor([0.2500])
    """
    return (coverage * mask).sum(dim=1) / coverage.sum(dim=1)


def is_touched(boxes: Tensor, mask: Tensor) -> Tensor:
    """Return of which sensitive boxes any pixel lies in a crossed patch, ``[F]``, 1 or 0.

    Args:
        boxes: Share of each patch that each box covers, ``[F, N]``.
        mask: True where a patch crossed, ``[N]``.

    Returns:
        NaN where a box lies outside of all patches, as one that the crop cuts off.

    >>> is_touched(torch.tensor([[0.1, 0.0], [0.0, 1.0], [0.0, 0.0]]), torch.tensor([True, False]))
    tensor([1., 0., nan])
    """
    seen = (boxes > 0) & mask
    return seen.any(dim=1).float().where((boxes > 0).any(dim=1), torch.nan)


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
