"""`Message`: one message between parties, whatever carries it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from qpriv.models.decoder.sequences import Side
from qpriv.split.layout import TokenLayout

MessageType = Literal[
    # one step of a split, U-shaped or not
    "forward",
    "backward",
    "step",
    "schedule",
    "generate",
    # one round of clients that average what each has trained alone
    "train",
    "trained",
    # who takes part, and whose turn it is
    "hello",
    "begin",
    "wait",
    "commit",
    "done",
    "refused",
]


@dataclass(frozen=True)
class Message:
    """One message between parties.

    Args:
        type: What the receiver shall do.
        tensors: What crosses, by kind: ``activation/values``, ``lengths``, ``labels``, ...
        side: Where the receiver pads rows.
        round: The round it belongs to.
        note: Short words: what was agreed on, or why something was refused.
    """

    type: MessageType
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    side: Side = "right"
    round: int = 0
    note: Mapping[str, str] = field(default_factory=dict)

    def num_bytes(self) -> int:
        """Return the exact size of the tensors.

        >>> Message("step", {"scalar/norm": torch.zeros(1, dtype=torch.float64)}).num_bytes()
        8
        """
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    def layout(self) -> TokenLayout:
        """Return how the rows are padded again."""
        return TokenLayout(self.tensors["lengths"], self.side, self.tensors.get("positions"))

    def to(self, device: torch.device) -> "Message":
        """Return the message with its tensors on a device."""
        return replace(self, tensors={n: value.to(device) for n, value in self.tensors.items()})


class Answers(Protocol):
    """The other party: anything that answers a message with a message."""

    def __call__(self, message: Message) -> Message:
        """Return the answer."""
        ...


def scalar(number: float) -> Tensor:
    """Return a number as it crosses: eight bytes."""
    return torch.tensor([number], dtype=torch.float64)
