"""`VQAv2`: questions about COCO images, ten answers each."""

from dataclasses import dataclass

from qpriv.datasets import vqav2

from .released import ReleasedVQA


@dataclass(eq=False, repr=False, kw_only=True)
class VQAv2(ReleasedVQA):
    """Questions about COCO images, ten answers each; see `qpriv.datasets.vqav2.VQAv2`."""

    source = vqav2.VQAv2

    def open(self, split: str) -> vqav2.VQAv2:
        """Return a split of the release."""
        return vqav2.VQAv2(self.root, split, self.cap, self.run_seed, **self.rows)
