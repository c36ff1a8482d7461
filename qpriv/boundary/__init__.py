"""What crosses between parties: cuts, transcripts, exact sizes."""

from .channel import Channel, Cut, stopped
from .codecs import Codec, CodecName, make_codec
from .stages import RandomKey, Remaining, Site, Stage, StageContext, Stages
from .traffic import Traffic
from .transcript import Direction, Kind, Message, Span, Transcript

__all__ = (
    "Channel",
    "Codec",
    "CodecName",
    "Cut",
    "Direction",
    "Kind",
    "Message",
    "RandomKey",
    "Remaining",
    "Site",
    "Span",
    "Stage",
    "StageContext",
    "Stages",
    "Traffic",
    "Transcript",
    "make_codec",
    "stopped",
)
