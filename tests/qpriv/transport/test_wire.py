"""Frames hold what was sent, bit for bit, and nothing else is let in."""

import json
import pickle

import pytest
import torch
from safetensors.torch import save

from qpriv.transport import MAX_MESSAGE, Message, TransportError, decode, encode, scalar

ROWS = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))


def frame(header: object, tensors: dict[str, torch.Tensor] | None = None) -> bytes:
    words = header if isinstance(header, bytes) else json.dumps(header).encode()
    return b"QPV1" + len(words).to_bytes(4, "little") + words + save(tensors or {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_message_arrives_as_it_left(dtype: torch.dtype) -> None:
    sent = Message(
        "forward",
        {
            "activation/values": ROWS.to(dtype).T.contiguous().T,  # not contiguous
            "lengths": torch.tensor([2, 3]),
            "labels": torch.tensor([-100, 1, 2, 3, 4], dtype=torch.int32),
            "scalar/tokens": scalar(4),
        },
        "left",
        round=7,
        note={"who": "x"},
    )
    arrived = decode(encode(sent))
    assert (arrived.type, arrived.side, arrived.round) == ("forward", "left", 7)
    assert dict(arrived.note) == {"who": "x"}
    assert arrived.tensors.keys() == sent.tensors.keys()
    for name, tensor in sent.tensors.items():
        assert arrived.tensors[name].dtype == tensor.dtype
        assert torch.equal(arrived.tensors[name], tensor)
    assert 0 < len(encode(sent)) - sent.num_bytes() < 700  # what names and types cost


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b"", "does not start"),
        (pickle.dumps({"type": "step"}), "does not start"),
        (b"QPV1" + (2**31).to_bytes(4, "little"), "header would have"),
        (frame(b"{"), "malformed"),
        (frame({"type": "obey"}), "obey"),
        (frame({"type": "step", "shell": "rm"}), "shell"),
        (frame({"type": "step", "round": -1}), "round"),
        (frame({"type": "step", "round": "1"}), "round"),
        (frame({"type": "hello", "note": {"x": "y" * 2000}}), "length"),
        (frame({"type": "step"})[:-3], "malformed"),
        (frame({"type": "step"}, {"activation/values": ROWS}), "step holds activation/values"),
        (frame({"type": "forward"}, {"image": ROWS}), "forward holds image"),
        (frame({"type": "forward"}, {"lengths": ROWS}), r"lengths is torch.float32"),
        (frame({"type": "step"}, {"scalar/norm": scalar(1).repeat(3)}), "3 numbers"),
    ],
)
def test_malformed_frames_are_refused_with_the_reason(broken: bytes, reason: str) -> None:
    with pytest.raises(TransportError, match=reason):
        decode(broken)


def test_frames_above_the_limit_are_not_even_parsed() -> None:
    whole = encode(Message("backward", {"gradient/values": ROWS}))
    assert decode(whole, limit=len(whole)).type == "backward"
    with pytest.raises(TransportError, match=f"{len(whole)} bytes, where {len(whole) - 1}"):
        decode(whole, limit=len(whole) - 1)
    assert len(whole) < MAX_MESSAGE
