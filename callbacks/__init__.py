"""Probes: callbacks that attack the model at epoch ends and leave no trace in it."""

from .probes.attributes import AttributeProbe as AttributeProbe
from .probes.extraction import ExtractionProbe as ExtractionProbe
from .probes.fora import ForaProbe as ForaProbe
from .probes.fsha import FshaProbe as FshaProbe
from .probes.gradients import GradientInversionProbe as GradientInversionProbe
from .probes.irrelevant_questions import IrrelevantQuestionProbe as IrrelevantQuestionProbe
from .probes.membership import MembershipProbe as MembershipProbe
from .probes.probe import Probe as Probe
from .probes.probe import ProbeError as ProbeError
from .probes.sensitivity import SensitivityProbe as SensitivityProbe
from .probes.side_channel import SideChannelProbe as SideChannelProbe
from .probes.steering import SteeringProbe as SteeringProbe
