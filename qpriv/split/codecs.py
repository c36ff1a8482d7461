"""Codecs of activations and gradients on the wire: formats, sizes and errors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor

CodecName = Literal["fp32", "bf16", "fp16", "int8"]
"""``int8`` has one fp32 scale per token."""

# fp64 is only sent if parties compute in it; users cannot choose it
_FLOATS: dict[str, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


class Codec(ABC):
    """Encodes activations and gradients ``[..., d]`` for the wire, and decodes them."""

    name: str

    @abstractmethod
    def encode(self, values: Tensor) -> dict[str, Tensor]:
        """Return the tensors that cross, by name."""

    @abstractmethod
    def decode(self, parts: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        """Return the decoded values ``[..., d]`` in the receiver's dtype."""

    @abstractmethod
    def token_bytes(self, width: int) -> int:
        """Return the size of one token of ``width`` numbers."""

    def keeps(self, dtype: torch.dtype) -> bool:
        """Return whether numbers of this type arrive bit for bit, as the same tensor."""
        return False

    def round_trip(self, values: Tensor) -> Tensor:
        """Return the decoded values, detached from the graph unless the codec is lossless."""
        if self.keeps(values.dtype):
            return values
        return self.decode(self.encode(values.detach()), values.dtype)

    def through(self, values: Tensor) -> Tensor:
        """Return the decoded values with a straight-through gradient.

        A real sender applies the received gradient to its values before rounding. This method
        does the same within one graph.
        """
        if self.keeps(values.dtype):
            return values
        return cast(Tensor, _Through.apply(values, self))


class Cast(Codec):
    """A cast to a floating-point dtype; overflow is clamped to the largest finite number.

    >>> Cast("fp16").round_trip(torch.tensor([1e6, 0.1])).tolist()
    [65504.0, 0.0999755859375]
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.dtype = _FLOATS[name]

    def encode(self, values: Tensor) -> dict[str, Tensor]:
        """Return the values in the codec's dtype."""
        if self.keeps(values.dtype):
            return {"values": values}
        limit = torch.finfo(self.dtype).max
        return {"values": values.float().clamp(-limit, limit).to(self.dtype)}

    def decode(self, parts: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        """Return the values in the receiver's type."""
        return parts["values"].to(dtype)

    def token_bytes(self, width: int) -> int:
        """Return the size of one token of ``width`` numbers."""
        return width * self.dtype.itemsize

    def keeps(self, dtype: torch.dtype) -> bool:
        """Return whether numbers of this type arrive bit for bit, as the same tensor."""
        return dtype == self.dtype


class Int8(Codec):
    """Eight bits per number and one fp32 scale per token, symmetric around zero.

    The number of largest magnitude in a token is encoded as ±127, so the error of each number is
    at most half of ``largest / 127``.

    >>> Int8().encode(torch.tensor([[127.0, 0.4, -0.6]]))["values"].tolist()
    [[127, 0, -1]]
    """

    name = "int8"
    _SCALE_BYTES = 4

    def encode(self, values: Tensor) -> dict[str, Tensor]:
        """Return ``values`` as int8 ``[..., d]`` and ``scale`` as fp32 ``[..., 1]``."""
        numbers = values.float()
        scale = numbers.abs().amax(dim=-1, keepdim=True) / 127
        # a non-finite token keeps a non-finite scale, so the receiver still sees that it is broken
        steps = (numbers / scale.where(scale > 0, 1.0)).nan_to_num().round().clamp(-127, 127)
        return {"values": steps.to(torch.int8), "scale": scale}

    def decode(self, parts: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        """Return the values in the receiver's type."""
        return (parts["values"] * parts["scale"]).to(dtype)

    def token_bytes(self, width: int) -> int:
        """Return the size of one token of ``width`` numbers."""
        return width + self._SCALE_BYTES


def make_codec(name: CodecName) -> Codec:
    """Return a codec by name.

    >>> [make_codec(name).token_bytes(4096) for name in ("fp32", "bf16", "fp16", "int8")]
    [16384, 8192, 8192, 4100]
    """
    return Int8() if name == "int8" else Cast(name)


def native(dtype: torch.dtype) -> Codec:
    """Return the lossless codec of a floating-point dtype."""
    return Cast(next(name for name, kept in _FLOATS.items() if kept == dtype))


def squared_error(sent: Sequence[Tensor], arrived: Sequence[Tensor]) -> tuple[float, float]:
    """Return the squared norms of the error and of the sent values."""
    before = torch.cat([row.detach().double().flatten() for row in sent])
    after = torch.cat([row.detach().double().flatten() for row in arrived])
    return float((before - after).square().sum()), float(before.square().sum())


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, codec: Codec) -> Tensor:  # noqa: ANN401
        return codec.round_trip(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return gradient, None
