"""`EasyVQA`: the public easy-vqa set."""

from dataclasses import dataclass

from qpriv.datasets import easy_vqa

from .base import Split, VQADataModule


@dataclass(eq=False, repr=False, kw_only=True)
class EasyVQA(VQADataModule):
    """One drawn shape an image, official train and test; nothing in it is sensitive."""

    source = easy_vqa.EasyVQA

    def dataset(self, split: Split) -> easy_vqa.EasyVQA:
        """Return a split of the set."""
        return easy_vqa.EasyVQA(split)
