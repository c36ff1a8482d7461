"""LightningDataModules, one file a data set."""

from .base import Split, SplitDataModule, VQADataModule
from .easy_vqa import EasyVQA
from .face_bags import FaceBags
from .face_scenes import FaceScenes

__all__ = (
    "EasyVQA",
    "FaceBags",
    "FaceScenes",
    "Split",
    "SplitDataModule",
    "VQADataModule",
)
