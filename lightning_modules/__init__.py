"""LightningModules: thin wrappers around qpriv that train, evaluate and export."""

from .base import TrainedOnly
from .document_vqa import DocumentVQAModule
from .sensitivity_teacher import SensitivityTeacher
from .student import PruningStudent
from .threshold_teacher import ThresholdTeacher
from .vqa import VQAModule

__all__ = (
    "DocumentVQAModule",
    "PruningStudent",
    "SensitivityTeacher",
    "ThresholdTeacher",
    "TrainedOnly",
    "VQAModule",
)
