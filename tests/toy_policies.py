"""Small policies that use the seats pruners have: one for what encoders give besides."""

from collections.abc import Sequence

import torch

from qpriv.datasets.sample import VQASample
from qpriv.models.features import Needs, VisualFeatures
from qpriv.pruning import PolicyLabel, PruningDecision, PruningPolicy, top_k


class ClassAttention(PruningPolicy):
    """Keeps the patches that the class token attends to most."""

    needs: Needs = frozenset({"cls_attention"})

    def __init__(self, ratio: float = 0.5) -> None:
        super().__init__()
        self.ratio = ratio

    @property
    def name(self) -> PolicyLabel:
        return PolicyLabel("class_attention", self.ratio)

    @torch.no_grad()
    def decide(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        score = features.need("cls_attention")
        ratios = [self.ratio] * len(samples)
        return PruningDecision(
            kept=top_k(score, self.counts(ratios, score.shape[1])),
            num_patches=score.shape[1],
            ratio=torch.tensor(ratios, dtype=torch.float64),
            score=score,
        )
