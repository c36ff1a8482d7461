"""`GQA`: questions about Visual Genome scenes."""

from dataclasses import dataclass
from typing import Literal

from qpriv.datasets import gqa

from .released import ReleasedVQA


@dataclass(eq=False, repr=False, kw_only=True)
class GQA(ReleasedVQA):
    """Questions about Visual Genome scenes; see `qpriv.datasets.gqa.GQA`.

    Args:
        subset: ``balanced``, which is what is scored, or ``all``.
    """

    subset: Literal["balanced", "all"] = "balanced"

    source = gqa.GQA

    def open(self, split: str) -> gqa.GQA:
        """Return a split of the release."""
        return gqa.GQA(self.root, split, self.subset, self.cap, self.run_seed, **self.rows)
