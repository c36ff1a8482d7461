"""`SLAKE`: English and Chinese questions about CT, MRI and X-ray images."""

from dataclasses import dataclass
from typing import Literal

from qpriv.datasets import slake

from .released import ReleasedVQA


@dataclass(eq=False, repr=False, kw_only=True)
class SLAKE(ReleasedVQA):
    """Questions about radiology images; see `qpriv.datasets.slake.SLAKE`.

    Args:
        lang: ``en``, ``zh``, or ``all``, whose splits share images.
    """

    lang: Literal["en", "zh", "all"] = "en"

    source = slake.SLAKE

    def open(self, split: str) -> slake.SLAKE:
        """Return a split of the release."""
        return slake.SLAKE(self.root, split, self.lang, self.cap, self.run_seed, **self.rows)
