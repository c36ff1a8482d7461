"""What crosses between parties: cuts, transcripts, exact sizes."""

from .codecs import Codec, CodecName, make_codec
from .crossing import Crossing, Stage, record
from .traffic import Traffic
from .transcript import Direction, Kind, Message, Span, Transcript

__all__ = (
    "Codec",
    "CodecName",
    "Crossing",
    "Direction",
    "Kind",
    "Message",
    "Span",
    "Stage",
    "Traffic",
    "Transcript",
    "make_codec",
    "record",
)
