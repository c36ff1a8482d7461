"""`VQARAD`: questions by clinicians about radiology images."""

from dataclasses import dataclass

from qpriv.datasets import vqa_rad

from .released import ReleasedVQA


@dataclass(eq=False, repr=False, kw_only=True)
class VQARAD(ReleasedVQA):
    """Questions about radiology images; see `qpriv.datasets.vqa_rad.VQARAD`."""

    source = vqa_rad.VQARAD

    def open(self, split: str) -> vqa_rad.VQARAD:
        """Return a split of the release; ``val`` is carved from the training images."""
        return vqa_rad.VQARAD(
            self.root,
            split,
            self.cap,
            self.run_seed,
            self.val_fraction,
            **self.rows,
        )
