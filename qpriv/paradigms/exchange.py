"""Split parties as objects that can only write to each other: the model taken apart, and trained.

A `SplitServer` or `BodyServer` holds its own layers, their optimiser, and nothing else. All it
learns comes as a `Packet`; so what it sees is what its packets hold, and that is tested. One step
is a conversation, the same one that `Split` simulates with hooks in one whole model:

    split       forward: activation, lengths, labels, tokens  ->  gradient, loss
    U-shaped    forward: activation, lengths                  ->  activation
                backward: gradient                            ->  gradient
    both        step: squared norm                            ->  squared norm of both
                generate: activation                          ->  next ids, or activation
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import DynamicCache

from qpriv.boundary.codecs import Codec, native
from qpriv.boundary.parties import Segment, Tail, TokenLayout, trained, unpack_labels
from qpriv.models.sequences import Side

from .clipping import scale_gradients, square_norm
from .recipe import LoraRecipe

Verb = Literal["forward", "backward", "step", "schedule", "generate"]


@dataclass(frozen=True)
class Packet:
    """One message between parties.

    Args:
        verb: What the receiver shall do.
        tensors: What crosses, by kind: ``activation/values``, ``lengths``, ``labels``, ...
        side: Where the receiver pads rows.
    """

    verb: Verb
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    side: Side = "right"

    def num_bytes(self) -> int:
        """Return the exact size of the tensors.

        >>> Packet("step", {"scalar/norm": torch.zeros(1, dtype=torch.float64)}).num_bytes()
        8
        """
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    def layout(self) -> TokenLayout:
        """Return how the rows are padded again."""
        return TokenLayout(self.tensors["lengths"], self.side, self.tensors.get("positions"))


class Answers(Protocol):
    """The other party: anything that answers a packet with a packet."""

    def __call__(self, packet: Packet) -> Packet:
        """Return the answer."""
        ...


class Party:
    """Some parts, what they train with, and the codec of what they send.

    Args:
        recipe: How adapters are trained.
        steps: Optimiser steps of the whole run, which the schedule spans.
        parts: The modules the party owns.
        codec: How activations and gradients are written; None as they are computed.
    """

    def __init__(
        self, recipe: LoraRecipe, steps: int, *parts: nn.Module, codec: Codec | None = None
    ) -> None:
        self.recipe, self.parts = recipe, parts
        self.trained = trained(*parts)
        self.optimizer: Optimizer = recipe.optimizer(self.trained)
        self.scheduler: LRScheduler = recipe.scheduler(self.optimizer, steps)
        self.codec = codec

    def write(self, kind: str, values: Tensor) -> dict[str, Tensor]:
        """Return what crosses of activations or gradients ``[sum T_i, d]``."""
        codec = self.codec or native(values.dtype)
        parts = codec.encode(values.detach())
        return {f"{kind}/{name}": part for name, part in parts.items()}

    def read(self, kind: str, packet: Packet) -> Tensor:
        """Return activations or gradients as this party computes with them."""
        prefix = f"{kind}/"
        parts = {n.removeprefix(prefix): t for n, t in packet.tensors.items() if prefix in n}
        dtype = self.trained[0].dtype
        return (self.codec or native(parts["values"].dtype)).decode(parts, dtype)

    def update(self, total: float) -> None:
        """Take an optimiser step, clipped by the squared norm of all parties together."""
        scale_gradients(self.trained, total, self.recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()


class Server(Party, ABC):
    """A party that answers packets."""

    def __init__(
        self, segment: Segment, recipe: LoraRecipe, steps: int, codec: Codec | None = None
    ) -> None:
        super().__init__(recipe, steps, segment, codec=codec)
        self.segment = segment
        self._cache: DynamicCache | None = None
        self._mask = torch.empty(0)

    def __call__(self, packet: Packet) -> Packet:
        """Answer a packet."""
        if packet.verb == "forward":
            return self._forward(packet)
        if packet.verb == "backward":
            return self._backward(packet)
        if packet.verb == "generate":
            with torch.no_grad():
                return self._generate(packet)
        if packet.verb == "step":
            total = float(packet.tensors["scalar/norm"]) + square_norm(self.trained)
            self.update(total)
            return Packet("step", {"scalar/norm": scalar(total)})
        self.scheduler.step()
        return Packet("schedule")

    @abstractmethod
    def _forward(self, packet: Packet) -> Packet: ...

    @abstractmethod
    def _backward(self, packet: Packet) -> Packet: ...

    @abstractmethod
    def _generate(self, packet: Packet) -> Packet: ...

    def _continue(self, packet: Packet) -> Tensor:
        """Run the layers on a prompt, or on the next token of each row, with a cache."""
        rows = self.read("activation", packet)
        if "lengths" in packet.tensors:
            layout = packet.layout()
            self._cache, self._mask = self.segment.new_cache(), layout.mask
            return self.segment(layout.unpack(rows), self._mask, layout.position_ids, self._cache)  # type: ignore[no-any-return]
        self._mask = torch.cat((self._mask, self._mask.new_ones(len(rows), 1)), dim=1)
        positions = self._mask.sum(dim=1, keepdim=True) - 1
        return self.segment(rows[:, None], self._mask, positions, self._cache)  # type: ignore[no-any-return]


class SplitServer(Server):
    """Layers from the cut on, norm and LM head; sees activations and labels."""

    segment: Tail

    def __init__(
        self, tail: Tail, recipe: LoraRecipe, steps: int, codec: Codec | None = None
    ) -> None:
        super().__init__(tail, recipe, steps, codec)

    def _forward(self, packet: Packet) -> Packet:
        layout = packet.layout()
        leaf = self.read("activation", packet).requires_grad_()
        hidden = self.segment(layout.unpack(leaf), layout.mask, layout.position_ids)
        labels = unpack_labels(layout, packet.tensors["labels"])
        share = int((labels != -100).sum()) / int(packet.tensors["scalar/tokens"])
        loss = self.segment.loss(hidden, labels) * share
        loss.backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        return Packet(
            "forward",
            {**self.write("gradient", leaf.grad), "scalar/loss": scalar(float(loss.detach()))},
        )

    def _backward(self, packet: Packet) -> Packet:
        raise ValueError("the server of a split computes the loss itself: send it labels")

    def _generate(self, packet: Packet) -> Packet:
        hidden = self._continue(packet)
        return Packet("generate", {"labels": self.segment.next_ids(hidden).int()})


class BodyServer(Server):
    """Layers between two cuts; sees activations and gradients, and nothing else."""

    def _forward(self, packet: Packet) -> Packet:
        layout = packet.layout()
        self._leaf = self.read("activation", packet).requires_grad_()
        hidden = self.segment(layout.unpack(self._leaf), layout.mask, layout.position_ids)
        self._layout, self._hidden = layout, hidden
        return Packet("forward", self.write("activation", layout.pack(hidden)))

    def _backward(self, packet: Packet) -> Packet:
        self._hidden.backward(self._layout.unpack(self.read("gradient", packet)))
        assert self._leaf.grad is not None
        return Packet("backward", self.write("gradient", self._leaf.grad))

    def _generate(self, packet: Packet) -> Packet:
        hidden = self._continue(packet)
        rows = packet.layout().pack(hidden) if "lengths" in packet.tensors else hidden[:, 0]
        return Packet("generate", self.write("activation", rows))


def scalar(number: float) -> Tensor:
    """Return a number as it crosses: eight bytes."""
    return torch.tensor([number], dtype=torch.float64)
