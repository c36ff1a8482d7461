"""`DocVQACanaries`: DocVQA with the canaries that `qpriv prepare canaries` found in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qpriv.attacks.extraction.contexts import CanarySet
from qpriv.datasets.decoding import decodable
from qpriv.datasets.documents.canaries import without
from qpriv.datasets.documents.docvqa import DocumentSplit, DocVQA
from qpriv.datasets.documents.preparation import load_canaries
from qpriv.datasets.report import OnBadRow
from qpriv.datasets.sample import VQASample

from .base import Split
from .documents import DocumentDataModule


@dataclass(eq=False, repr=False, kw_only=True)
class DocVQACanaries(DocumentDataModule):
    """DocVQA's training set with or without its canaries, its validation set as it is.

    Args:
        root: Folder of DocVQA, or of a parquet mirror, or a ``.zip`` of it.
        on_bad_row: ``stop`` raises the error of a record that cannot be used, of a page that cannot
            be decoded, too; ``drop`` leaves such records out, as ``qpriv prepare canaries`` was
            told.
        group_field: Field of a record that names its group, such as a person, as ``qpriv prepare
            canaries`` was told. A common name is found where empty, else a document is a group.
        canary_folder: Folder that ``qpriv prepare canaries`` wrote.
    """

    root: str = "data/docvqa"
    canary_folder: str = "data/docvqa-canaries"
    on_bad_row: OnBadRow = "stop"
    group_field: str = ""

    def __post_init__(self) -> None:
        """Check the numbers before anything is read."""
        super().__post_init__()
        self._found: dict[DocumentSplit, Sequence[VQASample]] = {}

    def split_samples(self, split: Split) -> list[VQASample]:
        """Return the samples of a split; validation replaces test, which has no answers."""
        samples = list(self._read("train" if split == "train" else "val"))
        if split != "train" or self.include_canaries:
            return samples
        return without(samples, load_canaries(Path(self.canary_folder)))

    def canaries(self) -> CanarySet:
        """Return the canaries with the training set."""
        training = self._read("train")
        return CanarySet(load_canaries(Path(self.canary_folder)), training)

    def _read(self, split: DocumentSplit) -> Sequence[VQASample]:
        """Return the samples of a split of the release; its pages are looked at once."""
        if split not in self._found:
            found = DocVQA(self.root, split, self.on_bad_row, self.group_field or None)
            self._found[split] = decodable(found.samples, found.report)
        return self._found[split]
