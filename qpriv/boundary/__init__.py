"""What crosses between parties: cuts, transcripts, exact sizes."""

from .crossing import Crossing, Stage, check_cut, record
from .transcript import Direction, Kind, Message, Span, Transcript

__all__ = (
    "Crossing",
    "Direction",
    "Kind",
    "Message",
    "Span",
    "Stage",
    "Transcript",
    "check_cut",
    "record",
)
