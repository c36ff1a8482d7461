"""The oracle grid search: which pruning ratio a question can bear (source section 8)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.models.batch import VQABatch
from qpriv.models.features import VisualFeatures

from .budget import check_ratio, default_k_min, kept_count, top_k
from .decision import PruningDecision
from .oracle_table import OracleMode, OracleTable
from .utility import random_scorer

if TYPE_CHECKING:  # importing it takes seconds, and only whoever built a model gets here
    from qpriv.models.llava.vision_language import VisionLanguageModel

GRID = (0.1, 0.2, 0.3, 0.5, 0.7)
"""The source's grid of ratios."""


class OracleSearch:
    """Tries ratios on every question until the answer turns right.

    In mode ``min``, the source's text, the ratio is the smallest of the grid at which the first
    token of the answer is a part of the gold answer, and 1 if there is none. A model that answers
    without pruning nearly always answers at the smallest ratio, so this tells right from wrong
    rather than how much an image can lose. Mode ``max`` is the largest ratio that still answers,
    and 0 if there is none.

    Args:
        model: The model that answers.
        mode: ``min`` or ``max``.
        grid: Ratios to try, each in [0, 1].
        k_min: Safety floor in patches; None scales the source's 16 of 576 to the grid.
        seed: Seed of the fixed random scorer that ranks the patches.
        rank: Scores patches, ``[B, N]``, in place of the random scorer.
        encode: Returns the features of a batch in place of the model's own `encode`, such as a
            cache's.
        batch_size: Questions a forward pass.

    Raises:
        ConfigError: If the grid is empty or holds an impossible ratio.
    """

    def __init__(
        self,
        model: "VisionLanguageModel",
        mode: OracleMode = "min",
        grid: Sequence[float] = GRID,
        k_min: int | None = None,
        seed: int = 0,
        rank: Callable[[VisualFeatures], Tensor] | None = None,
        encode: Callable[[VQABatch], VisualFeatures] | None = None,
        batch_size: int = 32,
    ) -> None:
        if not grid:
            raise ConfigError("the oracle's grid of ratios is empty")
        for ratio in grid:
            check_ratio(ratio)
        self.model, self.mode = model, mode
        self.grid = tuple(sorted(grid))
        self.k_min = default_k_min(model.num_patches) if k_min is None else k_min
        self.scorer_seed = seed if rank is None else None
        self._scorer = random_scorer(model.feature_sizes, seed)
        self._rank = rank or self._random_rank
        self._encode = encode or model.encode
        self._batch_size = batch_size

    def search(
        self, samples: Sequence[VQASample], progress: Callable[[int, int], None] | None = None
    ) -> OracleTable:
        """Return the oracle ratio of every sample.

        Args:
            samples: Questions with their gold answers.
            progress: Called after each batch with the numbers of samples done and in all.
        """
        ratios: dict[str, float] = {}
        for start in range(0, len(samples), self._batch_size):
            part = samples[start : start + self._batch_size]
            found = self.search_batch(self.model.preprocessor(part))
            ratios.update(zip((sample.key for sample in part), found, strict=True))
            if progress is not None:
                progress(len(ratios), len(samples))
        return OracleTable(ratios, self.mode, self.grid, self.k_min, self.scorer_seed)

    @torch.no_grad()
    def search_batch(self, batch: VQABatch) -> list[float]:
        """Return the oracle ratio of each sample; what is settled is not asked again."""
        features = self._encode(batch)
        score = self._rank(features)
        found = torch.full((len(batch),), 1.0 if self.mode == "min" else 0.0, dtype=torch.float64)
        unsettled = torch.arange(len(batch))
        for ratio in self.grid if self.mode == "min" else reversed(self.grid):
            right = self._answers(batch[unsettled], features[unsettled], score[unsettled], ratio)
            found[unsettled[right]] = ratio
            unsettled = unsettled[~right]
            if len(unsettled) == 0:
                break
        return found.tolist()

    def _answers(
        self, batch: VQABatch, features: VisualFeatures, score: Tensor, ratio: float
    ) -> Tensor:
        """Return whether each sample is answered at a ratio, bool ``[B]``."""
        count = kept_count(ratio, score.shape[1], self.k_min)
        decision = PruningDecision(
            kept=top_k(score, [count] * len(batch)),
            num_patches=score.shape[1],
            ratio=torch.full((len(batch),), ratio, dtype=torch.float64),
        )
        firsts = self.model.answer(batch, features, decision, max_new_tokens=1)
        pairs = zip(firsts, batch.samples, strict=True)
        return torch.tensor([first_token_matches(first, sample.answer) for first, sample in pairs])

    def _random_rank(self, features: VisualFeatures) -> Tensor:
        scorer = self._scorer.to(features.patches.device)
        utility: Tensor = scorer(features.patches.float(), features.question.float())
        return utility


def first_token_matches(token: str, answer: str) -> bool:
    """Return whether the first token of an answer is a part of the gold answer.

    Case and outer space do not count. A special token, which decodes to nothing, is no match;
    a single letter is one in every answer that holds it, as in the source.

    >>> first_token_matches("Blue", "light blue"), first_token_matches("", "blue")
    (True, False)
    """
    token = token.strip().casefold()
    return bool(token) and token in answer.casefold()
