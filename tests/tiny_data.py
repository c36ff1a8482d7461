"""A data module of noise images, for tests of training and of the command line."""

from dataclasses import dataclass, replace

from datamodules import Split, VQADataModule
from qpriv.datasets.base import VQADataset
from tests.tiny_models import random_samples


class NoiseVQA(VQADataset):
    """Noise images with a few questions; the splits are different images."""

    def __init__(self, split: str, size: int) -> None:
        drawn = random_samples(size, seed=("train", "val", "test").index(split))
        super().__init__(split, [replace(sample, split=split) for sample in drawn])


@dataclass(eq=False, repr=False, kw_only=True)
class Noise(VQADataModule):
    """`NoiseVQA` as a data module.

    Args:
        size: Samples of a split.
    """

    source = NoiseVQA
    size: int = 11
    batch_size: int = 4

    def dataset(self, split: Split) -> NoiseVQA:
        return NoiseVQA(split, self.size)
