"""Probes: callbacks that attack the model at epoch ends and leave no trace in it."""

from .extraction import ExtractionProbe
from .fora import ForaProbe
from .membership import MembershipProbe
from .probe import Probe, ProbeError
from .sensitivity import SensitivityProbe

__all__ = (
    "ExtractionProbe",
    "ForaProbe",
    "MembershipProbe",
    "Probe",
    "ProbeError",
    "SensitivityProbe",
)
