"""Training paradigms: who owns which layers and data, and who steps when."""

from .base import Centralized, Paradigm, Run
from .federated import Federated
from .split import SplitLearning
from .u_shaped import UShapedSplit

__all__ = ("Centralized", "Federated", "Paradigm", "Run", "SplitLearning", "UShapedSplit")
