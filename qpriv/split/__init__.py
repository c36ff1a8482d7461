"""Split learning's channel between parties: cuts, transcripts, exact sizes."""

from .channel import Channel, Cut, stopped
from .codecs import Codec, CodecName, make_codec
from .defence import EVERYWHERE, Defence, Part, Requirements
from .stages import RandomKey, Remaining, Site, Stage, StageContext, Stages
from .traffic import Traffic
from .transcript import CrossingRecord, Direction, Kind, Span, Transcript

__all__ = (
    "EVERYWHERE",
    "Channel",
    "Codec",
    "CodecName",
    "CrossingRecord",
    "Cut",
    "Defence",
    "Direction",
    "Kind",
    "Part",
    "RandomKey",
    "Remaining",
    "Requirements",
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
