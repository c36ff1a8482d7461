"""What crosses between parties: cuts, transcripts, exact sizes."""

from .crossing import Crossing, Stage, record
from .transcript import Direction, Kind, Message, Span, Transcript

__all__ = (
    "Crossing",
    "Direction",
    "Kind",
    "Message",
    "Span",
    "Stage",
    "Transcript",
    "record",
)
