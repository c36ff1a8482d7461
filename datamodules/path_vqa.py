"""`PathVQA`: questions about pathology images."""

from dataclasses import dataclass

from qpriv.datasets import path_vqa

from .released import ReleasedVQA


@dataclass(eq=False, repr=False, kw_only=True)
class PathVQA(ReleasedVQA):
    """Questions about pathology images; see `qpriv.datasets.path_vqa.PathVQA`."""

    source = path_vqa.PathVQA

    def open(self, split: str) -> path_vqa.PathVQA:
        """Return a split of the release."""
        return path_vqa.PathVQA(self.root, split, self.cap, self.run_seed, **self.rows)
