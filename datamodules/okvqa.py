"""`OKVQA`: questions about COCO images that need outside knowledge."""

from dataclasses import dataclass

from qpriv.datasets import okvqa

from .released import ReleasedVQA


@dataclass(eq=False, repr=False, kw_only=True)
class OKVQA(ReleasedVQA):
    """Questions about COCO images that need outside knowledge; see `qpriv.datasets.okvqa.OKVQA`."""

    source = okvqa.OKVQA

    def open(self, split: str) -> okvqa.OKVQA:
        """Return a split of the release."""
        return okvqa.OKVQA(self.root, split, self.cap, self.run_seed, **self.rows)
