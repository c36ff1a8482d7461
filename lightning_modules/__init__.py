"""LightningModules: thin shells over qpriv that train, evaluate and export."""

from .base import TrainedOnly
from .vqa import VQAModule

__all__ = (
    "TrainedOnly",
    "VQAModule",
)
