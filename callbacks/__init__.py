"""Probes: callbacks that attack the model at epoch ends and leave no trace in it."""

from .attributes import AttributeProbe
from .extraction import ExtractionProbe
from .fora import ForaProbe
from .fsha import FshaProbe
from .gradients import GradientInversionProbe
from .irrelevant_questions import IrrelevantQuestionProbe
from .membership import MembershipProbe
from .probe import Probe, ProbeError
from .sensitivity import SensitivityProbe
from .side_channel import SideChannelProbe

__all__ = (
    "AttributeProbe",
    "ExtractionProbe",
    "ForaProbe",
    "FshaProbe",
    "GradientInversionProbe",
    "IrrelevantQuestionProbe",
    "MembershipProbe",
    "Probe",
    "ProbeError",
    "SensitivityProbe",
    "SideChannelProbe",
)
