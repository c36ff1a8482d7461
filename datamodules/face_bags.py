"""`FaceBags`: the embedded images from which the sensitivity teacher learns."""

from dataclasses import dataclass

from qpriv.datasets import bags

from .base import Split, SplitDataModule


@dataclass(eq=False, repr=False, kw_only=True)
class FaceBags(SplitDataModule[bags.BagSample]):
    """Faces on textures against digits, textures and face-free scenes, labelled as a whole.

    Args:
        num_train: Training images.
        num_eval: Images of validation and of test each.
        world: Chooses other images; ``seed`` chooses their order alone.
    """

    num_train: int = 2500
    num_eval: int = 500
    world: int = 0

    def dataset(self, split: Split) -> bags.FaceBags:
        """Return a split of the bags."""
        number = self.num_train if split == "train" else self.num_eval
        return bags.FaceBags(split, number, self.world)
