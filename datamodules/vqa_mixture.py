"""`VQAMixture`: several sets as one, on which the threshold predictor is prepared."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from torch.utils.data import Dataset

from qpriv.datasets import mixture
from qpriv.datasets.sample import VQASample

from .base import Split, VQADataModule
from .released import ReleasedVQA


@dataclass(eq=False, repr=False, kw_only=True)
class VQAMixture(VQADataModule):
    """The union of several released sets; see `qpriv.datasets.mixture.VQAMixture`.

    Args:
        datasets: The modules of the sets; their own loaders are not used.
        cap: Largest number of questions of each set and split, drawn by image.
        oracle_cap: Largest number of each set for the oracle search, out of those.
    """

    datasets: list[ReleasedVQA] = field(default_factory=list)
    cap: int | None = 3000
    oracle_cap: int | None = 500

    source = mixture.VQAMixture

    def setup(self, stage: str) -> None:
        """Read the splits of a stage, and compare those of each set.

        Raises:
            DataError: As the modules of the sets.
        """
        super().setup(stage)
        for module in self.datasets:
            module.compare(stage)

    def accounts(self, whole: Dataset[VQASample], split: Split) -> Iterable[object]:
        """Return the reports of the sets and of their union."""
        union = cast(mixture.VQAMixture, whole)
        return (*(part.report for part in union.datasets), union.report)

    def dataset(self, split: Split) -> mixture.VQAMixture:
        """Return a split of the union."""
        parts = [module.dataset(split) for module in self.datasets]
        return mixture.VQAMixture(parts, self.cap, self.oracle_cap, self.run_seed)

    def oracle_samples(self, split: Split = "train") -> Sequence[VQASample]:
        """Return the samples of a split on which the oracle searches the best ratio."""
        return self.dataset(split).oracle_samples
