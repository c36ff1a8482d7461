"""Official file formats read into typed samples."""

from .base import VQADataset
from .conversations import Conversations
from .gqa import GQA
from .mixture import VQAMixture
from .okvqa import OKVQA
from .path_vqa import PathVQA
from .report import DataReport
from .sample import AnswerType, VQASample
from .slake import SLAKE
from .vqa_rad import VQARAD
from .vqav2 import VQAv2

__all__ = (
    "GQA",
    "OKVQA",
    "SLAKE",
    "VQARAD",
    "AnswerType",
    "Conversations",
    "DataReport",
    "PathVQA",
    "VQADataset",
    "VQAMixture",
    "VQASample",
    "VQAv2",
)
