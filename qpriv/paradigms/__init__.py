"""Who owns which layers, and who steps when."""

from .federated import Federated
from .paradigm import Centralized, Paradigm, Run
from .split import SplitLearning
from .u_shaped import UShapedSplit

__all__ = ("Centralized", "Federated", "Paradigm", "Run", "SplitLearning", "UShapedSplit")
