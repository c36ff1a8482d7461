"""`VQAMixture`: several sets as one, on which the threshold predictor is prepared."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from torch.utils.data import Dataset

from qpriv.datasets import mixture
from qpriv.datasets.base import VQADataset
from qpriv.datasets.report import OnBadRow
from qpriv.datasets.sample import VQASample

from .base import Split, VQADataModule
from .released import ReleasedVQA
from .texts import samples_of


@dataclass(eq=False, repr=False, kw_only=True)
class VQAMixture(VQADataModule):
    """The union of several released sets; see `qpriv.datasets.mixture.VQAMixture`.

    A text that the model does not take is left out where every set has ``on_bad_row: drop``; it is
    an error before the training otherwise.

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
        searched = VQADataset(split, self.dataset(split).oracle_samples)
        return samples_of(self.fitting(f"{split} of the oracle", searched))

    @property
    def on_bad_text(self) -> OnBadRow:
        """Return what is done about a text that the model does not take."""
        drops = all(module.on_bad_row == "drop" for module in self.datasets)
        return "drop" if drops else "stop"
