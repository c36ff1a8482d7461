"""Small policies that use every seat a pruner has: needs, stages, merges and restarts."""

from collections.abc import Sequence

import torch

from qpriv.datasets.sample import VQASample
from qpriv.models.decoder.sequences import Positions
from qpriv.models.decoder.stages import Stage, StageChoice, StageView
from qpriv.models.features import Needs, VisualFeatures
from qpriv.pruning import InDecoderPruning, PolicyLabel, PruningDecision, PruningPolicy, top_k


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


class LastTokenAttention(InDecoderPruning):
    """Keeps behind each stage what the last prompt token attends to most, as FastV does.

    How many differs from sample to sample: the longer the prompt, the fewer.

    Args:
        stages: Where.
        share: Share of the tokens that go on, less one for each two tokens of text.
        merge: Merge what is dropped into so many means.
    """

    def __init__(
        self,
        stages: tuple[Stage, ...] = (Stage(3),),
        share: float = 0.5,
        positions: Positions = "compact",
        adapters: bool = False,
        restarts: bool = False,
        merge: int = 0,
    ) -> None:
        super().__init__(positions, adapters, restarts)
        self._stages, self.share, self.merge = stages, share, merge

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self._stages

    @property
    def name(self) -> PolicyLabel:
        return PolicyLabel("last_token", self.share, settings=self._stage_settings())

    def choose(self, number: int, view: StageView) -> StageChoice:
        start, stop = view.image
        score = view.attention().mean(dim=0)[0, start:stop]
        text = len(view) - (stop - start)
        count = max(1, round(self.share * (stop - start)) - text // 2)
        (kept,) = top_k(score[None], [count])
        if not self.merge:
            return StageChoice(kept)
        dropped = torch.ones(stop - start, dtype=torch.bool)
        dropped[kept] = False
        weights = torch.zeros(self.merge, stop - start)
        for group, members in enumerate(dropped.nonzero()[:, 0].chunk(self.merge)):
            weights[group, members] = 1 / len(members)
        return StageChoice(kept, weights)


class KeepAll(LastTokenAttention):
    """Has stages, and drops nothing at any."""

    def choose(self, number: int, view: StageView) -> StageChoice:
        return StageChoice(torch.arange(len(view.patches)))
