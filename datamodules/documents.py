"""Base of the document data modules: pages with their questions, with or without canaries."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch.utils.data import Dataset

from qpriv.attacks.extraction.contexts import CanarySet
from qpriv.datasets.sample import VQASample
from qpriv.defences.extraction_blocking import ExtractionBlocking
from qpriv.models.documents.batch import PageQuestions, by_page

from .base import Split, SplitDataModule


class Pages(Dataset[PageQuestions]):
    """Groups of questions about one page."""

    def __init__(self, groups: Sequence[PageQuestions]) -> None:
        self.groups = groups

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.groups)

    def __getitem__(self, index: int) -> PageQuestions:
        """Return the questions about one page."""
        return self.groups[index]


@dataclass(eq=False, repr=False, kw_only=True)
class DocumentDataModule(SplitDataModule[PageQuestions]):
    """Pages with their questions; a batch is a number of pages.

    It is `ExtractionData`: its `canaries` are what an attacker asks for.

    Args:
        batch_size: Pages a step and process, each with all its questions.
        eval_batch_size: Pages a batch in validation and test.
        include_canaries: Train on the canaries (f), or leave them out (f_G).
        extraction_blocking: Add each sample's twin without its answer, to abstain from.
        deduplicate: Keep each page once, however often it stands in the training set.
    """

    batch_size: int = 16
    eval_batch_size: int = 16
    include_canaries: bool = True
    extraction_blocking: bool = False
    deduplicate: bool = False

    @abstractmethod
    def canaries(self) -> CanarySet:
        """Return the canaries with the samples they come from."""

    @abstractmethod
    def split_samples(self, split: Split) -> list[VQASample]:
        """Return the samples of a split; repeated samples appear as often as in the data."""

    def dataset(self, split: Split) -> Dataset[PageQuestions]:
        """Return the pages of a split."""
        samples = self.split_samples(split)
        if split == "train" and self.deduplicate:
            samples = list({sample.key: sample for sample in samples}.values())
        if split == "train" and self.extraction_blocking:
            samples = ExtractionBlocking().blocked(samples)
        return Pages(by_page(samples))
