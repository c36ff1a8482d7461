"""LightningDataModules, one file a data set."""

from .base import Split, SplitDataModule, VQADataModule

__all__ = (
    "Split",
    "SplitDataModule",
    "VQADataModule",
)
