"""The source's reference policy: ratios that were searched with the gold answer at hand."""

from collections.abc import Sequence
from pathlib import Path

import torch

from qpriv.datasets.sample import VQASample
from qpriv.errors import DataError
from qpriv.models.features import VisualFeatures

from .budget import top_k
from .decision import PruningDecision
from .label import PolicyLabel
from .oracle_table import OracleTable
from .policy import PruningPolicy
from .utility import random_scorer


class OraclePruning(PruningPolicy):
    """Drops the share the oracle search found: for reference, since it needs the gold answer.

    Ranks by the search's own random scorer, as in the source.

    Args:
        table: File of an `OracleTable`, or the table itself.
        k_min: Safety floor in patches; None scales the source's 16 of 576 to the grid.

    Raises:
        DataError: If the file is missing or no oracle table, or its ranking is not the random
            scorer's.
    """

    def __init__(self, table: str | Path | OracleTable, k_min: int | None = None) -> None:
        super().__init__(k_min)
        self.table = table if isinstance(table, OracleTable) else OracleTable.load(table)
        if self.table.scorer_seed is None:
            raise DataError(
                "the oracle table was searched with a trained scorer",
                remedy="search with the random scorer, the source's reference",
            )

    @property
    def name(self) -> PolicyLabel:
        """Return such as ``oracle(min)``."""
        return PolicyLabel("oracle", settings=(self.table.mode, *self._floor_setting()))

    @torch.no_grad()
    def decide(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        """Return the random scorer's best patches at each sample's oracle ratio.

        Raises:
            DataError: If a sample is not in the table.
        """
        ratios = [self.table.ratio_of(sample.key) for sample in samples]
        scorer = random_scorer(features.sizes, self.table.scorer_seed or 0)
        score = scorer.to(features.patches.device)(
            features.patches.float(), features.question.float()
        )
        return PruningDecision(
            kept=top_k(score, self.counts(ratios, score.shape[1])),
            num_patches=score.shape[1],
            ratio=torch.tensor(ratios, dtype=torch.float64),
            utility=score,
            score=score,
        )
