"""`DocVQACanaries`: DocVQA with the canaries that `qpriv prepare canaries` found in it."""

from dataclasses import dataclass
from pathlib import Path

from qpriv.attacks.extraction_contexts import CanarySet
from qpriv.datasets.documents.canaries import without
from qpriv.datasets.documents.docvqa import DocVQA
from qpriv.datasets.documents.preparation import load_canaries
from qpriv.datasets.sample import VQASample

from .base import Split
from .documents import DocumentDataModule


@dataclass(eq=False, repr=False, kw_only=True)
class DocVQACanaries(DocumentDataModule):
    """DocVQA's training set with or without its canaries, its validation set as it is.

    Args:
        root: Folder of DocVQA, or of a parquet mirror, or a ``.zip`` of it.
        canary_folder: Folder that ``qpriv prepare canaries`` wrote.
    """

    root: str = "data/docvqa"
    canary_folder: str = "data/docvqa-canaries"

    def split_samples(self, split: Split) -> list[VQASample]:
        """Return the samples of a split; test has no answers, validation stands in for it."""
        samples = list(DocVQA(self.root, "train" if split == "train" else "val").samples)
        if split != "train" or self.include_canaries:
            return samples
        return without(samples, load_canaries(Path(self.canary_folder)))

    def canaries(self) -> CanarySet:
        """Return the canaries with the training set."""
        training = DocVQA(self.root, "train").samples
        return CanarySet(load_canaries(Path(self.canary_folder)), training)
