"""LightningDataModules, one file a data set."""

from .base import Split, SplitDataModule, VQADataModule
from .conversations import Conversations
from .docvqa_canaries import DocVQACanaries
from .dpriv import DPriv
from .easy_vqa import EasyVQA
from .face_bags import FaceBags
from .face_scenes import FaceScenes
from .fake_documents import FakeDocuments
from .gqa import GQA
from .okvqa import OKVQA
from .path_vqa import PathVQA
from .released import ReleasedVQA
from .slake import SLAKE
from .vqa_mixture import VQAMixture
from .vqa_rad import VQARAD
from .vqav2 import VQAv2

__all__ = (
    "GQA",
    "OKVQA",
    "SLAKE",
    "VQARAD",
    "Conversations",
    "DPriv",
    "DocVQACanaries",
    "EasyVQA",
    "FaceBags",
    "FaceScenes",
    "FakeDocuments",
    "PathVQA",
    "ReleasedVQA",
    "Split",
    "SplitDataModule",
    "VQADataModule",
    "VQAMixture",
    "VQAv2",
)
