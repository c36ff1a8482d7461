"""Messages as bytes: a header that is checked against a schema, then tensors as safetensors.

A frame is four bytes ``QPV1``, the length of the header (four bytes, little endian), the header
as JSON, and one safetensors file. Nothing in it is ever executed, and every tensor must be of a
known kind, type and number of dimensions before anybody computes with it.
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from qpriv.models.decoder.sequences import Side

from .errors import TransportError
from .message import Message, MessageType

MAGIC = b"QPV1"
MAX_HEADER = 64 * 1024
"""Bytes of a header: it holds words, and no data."""

MAX_MESSAGE = 256 * 1024 * 1024
"""Bytes of a frame, unless the parties agree on more."""

_START = len(MAGIC) + 4
_FLOATS = frozenset({torch.float32, torch.bfloat16, torch.float16})
_Word = Annotated[str, msgspec.Meta(max_length=1000)]


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    type: MessageType
    side: Side = "right"
    round: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    note: Annotated[dict[_Word, _Word], msgspec.Meta(max_length=64)] = {}


@dataclass(frozen=True)
class _Spec:
    """What a tensor of some kind may be."""

    types: frozenset[torch.dtype]
    dimensions: frozenset[int]


_SPECS = {
    "activation/values": _Spec(_FLOATS | {torch.int8}, frozenset({2})),
    "activation/scale": _Spec(frozenset({torch.float32}), frozenset({2})),
    "gradient/values": _Spec(_FLOATS | {torch.int8}, frozenset({2})),
    "gradient/scale": _Spec(frozenset({torch.float32}), frozenset({2})),
    "lengths": _Spec(frozenset({torch.int64}), frozenset({1})),
    "positions": _Spec(frozenset({torch.int64}), frozenset({1})),
    "labels": _Spec(frozenset({torch.int32}), frozenset({1})),
    "scalar": _Spec(frozenset({torch.float64}), frozenset({1})),
    "adapter": _Spec(_FLOATS, frozenset({1, 2})),
}
_HIDDEN = ("activation/values", "activation/scale", "gradient/values", "gradient/scale")
_KINDS: dict[MessageType, tuple[str, ...]] = {
    "forward": (*_HIDDEN, "lengths", "positions", "labels", "scalar"),
    "backward": _HIDDEN,
    "step": ("scalar",),
    "generate": ("activation/values", "activation/scale", "lengths", "positions", "labels"),
    "train": ("adapter",),
    "trained": ("adapter", "scalar"),
    "done": ("adapter",),
}


def encode(message: Message) -> bytes:
    """Return a message as one frame.

    >>> decode(encode(Message("step", {"scalar/norm": torch.zeros(1, dtype=torch.float64)}))).type
    'step'
    """
    header = msgspec.json.encode(
        _Header(message.type, message.side, message.round, dict(message.note))
    )
    # a view would make safetensors write the whole tensor behind it, or refuse
    body = save(
        {name: value.detach().cpu().contiguous() for name, value in message.tensors.items()}
    )
    return b"".join((MAGIC, len(header).to_bytes(4, "little"), header, body))


def decode(frame: bytes, limit: int = MAX_MESSAGE) -> Message:
    """Return the message in a frame.

    Raises:
        TransportError: If it is too large, malformed, or holds what its type does not allow.
    """
    if len(frame) > limit:
        raise too_large(len(frame), limit)
    if frame[: len(MAGIC)] != MAGIC:
        raise _malformed(f"it does not start with {MAGIC.decode()}")
    size = int.from_bytes(frame[len(MAGIC) : _START], "little")
    if not 0 < size <= min(MAX_HEADER, len(frame) - _START):
        raise _malformed(f"its header would have {size} bytes")
    try:
        header = msgspec.json.decode(frame[_START : _START + size], type=_Header)
        tensors = load(frame[_START + size :])
    except (msgspec.DecodeError, SafetensorError, KeyError, ValueError) as error:
        raise _malformed(str(error)) from error
    for name, tensor in tensors.items():
        _check(header.type, name, tensor)
    return Message(header.type, tensors, header.side, header.round, header.note)


def kind_of(name: str) -> str:
    """Return the kind of a tensor by its name.

    >>> kind_of("activation/values"), kind_of("scalar/norm"), kind_of("adapter/q_proj.lora_A")
    ('activation/values', 'scalar', 'adapter')
    """
    return name if name in _SPECS else name.partition("/")[0]


def too_large(size: int, limit: int) -> TransportError:
    """Return the error of a message that exceeds the limit."""
    return TransportError(
        f"a message of {size:,} bytes, where {limit:,} are allowed",
        where="--max_message",
        remedy="send smaller micro-batches, or allow more at both ends",
    )


def _check(type: MessageType, name: str, tensor: Tensor) -> None:
    kind = kind_of(name)
    if kind not in _KINDS.get(type, ()):
        raise _malformed(f"{type} holds {name}")
    spec = _SPECS[kind]
    if tensor.dtype not in spec.types or tensor.dim() not in spec.dimensions:
        raise _malformed(f"{name} is {tensor.dtype} of shape {list(tensor.shape)}")
    if kind == "scalar" and tensor.numel() != 1:
        raise _malformed(f"{name} holds {tensor.numel()} numbers")


def _malformed(reason: str) -> TransportError:
    return TransportError(
        f"a malformed message: {' '.join(reason.split())[:300]}",
        remedy="use the same release of qpriv at both ends",
    )
