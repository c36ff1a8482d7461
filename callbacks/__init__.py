"""Probes: callbacks that attack the model at epoch ends and leave no trace in it."""

from .attributes import AttributeProbe as AttributeProbe
from .extraction import ExtractionProbe as ExtractionProbe
from .fora import ForaProbe as ForaProbe
from .fsha import FshaProbe as FshaProbe
from .gradients import GradientInversionProbe as GradientInversionProbe
from .irrelevant_questions import IrrelevantQuestionProbe as IrrelevantQuestionProbe
from .membership import MembershipProbe as MembershipProbe
from .probe import Probe as Probe
from .probe import ProbeError as ProbeError
from .sensitivity import SensitivityProbe as SensitivityProbe
from .side_channel import SideChannelProbe as SideChannelProbe
