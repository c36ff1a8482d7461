"""`FakeDocuments`: the embedded document set, with canaries of known kind and repetition."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from qpriv.attacks.extraction.contexts import CanarySet
from qpriv.datasets.documents.canaries import Curation
from qpriv.datasets.documents.fake_documents import DocumentMaker, FakeCorpus, fake_corpus
from qpriv.datasets.documents.preparation import prepare_canaries
from qpriv.datasets.sample import VQASample

from .base import Split
from .documents import DocumentDataModule


@dataclass(eq=False, repr=False, kw_only=True)
class FakeDocuments(DocumentDataModule):
    """Forms, letters, tickets and invoices about invented people.

    Args:
        num_base: Documents that are no canaries.
        num_canaries: Canary documents by how often each stands in the training set.
        num_eval: Documents of validation, and as many of test.
        specific_share: Share of questions that name another value of their page.
        world: Chooses other documents; ``seed`` chooses their order alone.
    """

    num_base: int = 100
    num_canaries: Mapping[int, int] = field(default_factory=lambda: {1: 44, 2: 10, 5: 6})
    num_eval: int = 100
    specific_share: float = 0.5
    world: int = 0

    @cached_property
    def corpus(self) -> FakeCorpus:
        """Return the documents."""
        maker = DocumentMaker(seed=1000 + self.world, specific_share=self.specific_share)
        return fake_corpus(self.num_base, self.num_canaries, 2 * self.num_eval, maker)

    def split_samples(self, split: Split) -> list[VQASample]:
        """Return the samples of a split."""
        if split == "train":
            return self.corpus.training(self.include_canaries)
        half = len(self.corpus.validation) // 2
        return list(
            self.corpus.validation[:half] if split == "val" else self.corpus.validation[half:]
        )

    def canaries(self) -> CanarySet:
        """Return the canaries; frequent answers stay, they are what generalises."""
        settings = Curation(max_train_count=10**9, max_template_share=1.0)
        training = self.corpus.training()
        with TemporaryDirectory() as folder:
            prepared = prepare_canaries(
                training, Path(folder), settings, candidates=self.corpus.canaries
            )
        return CanarySet(prepared.canaries, training)
