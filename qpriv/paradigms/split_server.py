"""The servers of split learning, which communicate with clients only by messages.

A `SplitServer` or `BodyServer` holds its own layers and their optimiser, and nothing else. All its
information comes from a `Message`, so it sees exactly what its messages hold; tests check this. A
step is the following exchange, which `SplitParadigm` simulates with hooks in one whole model:

    split       forward: activation, lengths, labels, tokens  ->  gradient, loss
    U-shaped    forward: activation, lengths                  ->  activation
                backward: gradient                            ->  gradient
    both        step: squared norm                            ->  squared norm of both
                generate: activation                          ->  next ids, or activation

Every message is checked before use; an invalid one raises a `TransportError`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from qpriv.models.decoder.sequences import IGNORED
from qpriv.models.llava.forward_pass import Mode
from qpriv.split import Direction, RandomKey, Site, StageContext
from qpriv.split.codecs import Codec
from qpriv.split.layers import Segment, Tail, unpack_labels
from qpriv.split.layout import TokenLayout
from qpriv.split.padding import filled, strip_rows
from qpriv.transport.errors import TransportError
from qpriv.transport.message import Answers, Message, MessageType, scalar

from .clipping import square_norm
from .guards import Guards
from .party import Party
from .recipe import LoraRecipe

__all__ = (
    "Answers",
    "BodyServer",
    "Generation",
    "Message",
    "MessageType",
    "Party",
    "Server",
    "SplitServer",
    "scalar",
)


@dataclass
class Generation:
    """The state of a generation in progress.

    Args:
        cache: Keys and values of the server's layers.
        mask: Attention mask, 1 for real tokens, ``[B, S]``.
        position: Position of each row's last token, ``[B]``.
        token: Number of tokens since the prompt.
    """

    cache: DynamicCache
    mask: Tensor
    position: Tensor
    token: int = 0


class Server(Party, ABC):
    """A party that answers messages.

    Args:
        segment: The server's layers.
        recipe: Training recipe of the adapters.
        steps: Optimiser steps of the whole run.
        codec: Codec of activations and gradients; None sends them as computed.
        bucket: Messages are padded to a multiple of this many tokens per sample.
        guards: The defence at the cuts.
        seed: Seed of the random numbers of the server's stages.
    """

    def __init__(
        self,
        segment: Segment,
        recipe: LoraRecipe,
        steps: int,
        codec: Codec | None = None,
        bucket: int = 1,
        guards: Guards | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(recipe, steps, segment, codec=codec, bucket=bucket, guards=guards)
        self.segment, self.seed = segment, seed
        self.client = 0
        """Number of the client being served."""
        self.generation: Generation | None = None
        self._passes = 0
        self._entrance = Site(segment.start, Direction.UP, self.width)

    def __call__(self, message: Message) -> Message:
        """Answer a message.

        Raises:
            TransportError: If the message is invalid; it then has no effect.
        """
        if message.type == "forward":
            return self._forward(message)
        if message.type == "backward":
            return self._backward(message)
        if message.type == "generate":
            with torch.no_grad():
                return self._generate(message)
        if message.type == "step":
            total = _number(message, "norm") + square_norm(self.trained)
            self.update(total)
            self._passes = 0
            return Message("step", {"scalar/norm": scalar(total)})
        if message.type == "schedule":
            self.scheduler.step()
            return Message("schedule")
        raise TransportError(f"a server of layers does not {message.type}")

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` returned; what is under way is forgotten."""
        super().load_state(state)
        self._passes = 0

    @abstractmethod
    def _forward(self, message: Message) -> Message: ...

    @abstractmethod
    def _backward(self, message: Message) -> Message: ...

    @abstractmethod
    def _generate(self, message: Message) -> Message: ...

    def _layout(self, message: Message) -> TokenLayout:
        """Check and return the layout of a message's rows."""
        lengths, positions = message.tensors.get("lengths"), message.tensors.get("positions")
        if lengths is None or not len(lengths):
            raise TransportError(f"{message.type} does not tell the lengths of its samples")
        if int(lengths.min()) < 1 or int(lengths.max()) > self.longest:
            raise TransportError(
                f"lengths are {int(lengths.min())} to {int(lengths.max())}",
                remedy=f"send 1 to {self.longest} tokens a sample",
            )
        if positions is not None and (
            len(positions) != int(lengths.sum())
            or not 0 <= int(positions.min()) <= int(positions.max()) < self.longest
        ):
            raise TransportError(f"positions do not fit {int(lengths.sum())} tokens")
        return message.layout()

    def _context(
        self, site: Site, layout: TokenLayout, mode: Mode = "train", token: int = 0
    ) -> StageContext:
        """Return the server's context of the rows of a pass."""
        step = int(self.scheduler.last_epoch)
        key = RandomKey(self.seed, step, self._passes, self.client)
        return StageContext(site, layout, mode=mode, token=token, key=key)

    def _leave(self, gradient: Tensor, context: StageContext) -> dict[str, Tensor]:
        """Encode the gradient of a client's activations for the wire."""
        returned = self.ends.encode_gradient(gradient, context)
        return self.write("gradient", returned, context.layout.lengths)

    def _continue(self, message: Message) -> tuple[Tensor, TokenLayout | None]:
        """Run the layers on a prompt, or on the next token of each row, with a cache."""
        if "lengths" in message.tensors:
            layout = self._layout(message)
            rows = self.read("activation", message, layout.lengths, "generate")
            rows = self.ends.decode(rows, self._context(self._entrance, layout, "generate"))
            mask, positions = layout.mask, layout.position_ids
            last = (positions * mask).amax(dim=1)
            self.generation = Generation(self.segment.new_cache(), mask, last)
            hidden = self.segment(layout.unpack(rows), mask, positions, self.generation.cache)
            return hidden, layout
        going = self.generation
        if (
            going is None
            or going.mask.shape[1] >= self.longest
            or int(going.position.max()) + 1 >= self.longest
        ):
            raise TransportError("there is no answer to go on with, or it is at its longest")
        going.token += 1
        single = TokenLayout(going.mask.new_ones(len(going.mask)))
        rows = self.read("activation", message, single.lengths, "generate")
        rows = self.ends.decode(
            rows, self._context(self._entrance, single, "generate", going.token)
        )
        going.mask = torch.cat((going.mask, going.mask.new_ones(len(rows), 1)), dim=1)
        going.position = going.position + 1
        positions = going.position[:, None]
        return self.segment(rows[:, None], going.mask, positions, going.cache), None


class SplitServer(Server):
    """The server of a split: layers after the cut, norm and LM head; sees labels."""

    segment: Tail

    def _forward(self, message: Message) -> Message:
        layout = self._layout(message)
        leaf = self.read("activation", message, layout.lengths).requires_grad_()
        labels = self._labels(message, layout)
        share = int((labels != IGNORED).sum()) / _tokens(message)
        context = self._context(self._entrance, layout)
        arrived = layout.unpack(self.ends.decode(leaf, context))
        hidden = self.segment(arrived, layout.mask, layout.position_ids)
        loss = self.segment.loss(hidden, labels) * share
        loss.backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        gradient = self._leave(leaf.grad, context)
        self._passes += 1
        return Message("forward", {**gradient, "scalar/loss": scalar(float(loss.detach()))})

    def _labels(self, message: Message, layout: TokenLayout) -> Tensor:
        sent = message.tensors.get("labels", torch.empty(0))
        count = sum(filled(length, self.bucket) for length in layout.lengths.tolist())
        vocabulary = int(self.segment.config.vocab_size)
        real = sent[sent != IGNORED]
        if (
            len(sent) != count
            or not len(real)
            or not 0 <= int(real.min()) <= int(real.max()) < vocabulary
        ):
            raise TransportError(
                f"{len(sent)} labels do not fit {count} tokens of {vocabulary} words"
            )
        return unpack_labels(layout, strip_rows(sent, layout.lengths, self.bucket))

    def _backward(self, message: Message) -> Message:
        raise TransportError("the server of a split computes the loss itself: send it labels")

    def _generate(self, message: Message) -> Message:
        hidden, _ = self._continue(message)
        return Message("generate", {"labels": self.segment.next_ids(hidden).int()})


class BodyServer(Server):
    """The server of a U-shaped split: layers between two cuts; sees no labels."""

    _open: tuple[TokenLayout, Tensor, Tensor] | None = None
    """Layout, received rows and sent rows of the pass in progress."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` returned; what is under way is forgotten."""
        super().load_state(state)
        self._open = None

    def _forward(self, message: Message) -> Message:
        layout = self._layout(message)
        leaf = self.read("activation", message, layout.lengths).requires_grad_()
        arrived = layout.unpack(self.ends.decode(leaf, self._context(self._entrance, layout)))
        hidden = self.segment(arrived, layout.mask, layout.position_ids)
        sent = self._send(layout.pack(hidden), self._context(self._exit, layout))
        self._open = layout, leaf, sent
        return Message("forward", self.write("activation", sent, layout.lengths))

    @property
    def _exit(self) -> Site:
        return Site(self.segment.stop, Direction.DOWN, self.width)

    def _send(self, rows: Tensor, context: StageContext) -> Tensor:
        """Encode the body's activations for the wire."""
        sent, _, places = self.ends.encode(rows, context)
        if places is not None:
            raise ValueError("a client alone can withdraw rows, at its own cut")
        return sent

    def _backward(self, message: Message) -> Message:
        if self._open is None:
            raise TransportError("a gradient came for no activation")
        layout, leaf, sent = self._open
        gradient = self.read("gradient", message, layout.lengths)
        gradient = self.ends.decode_gradient(gradient, self._context(self._exit, layout))
        sent.backward(gradient)  # type: ignore[no-untyped-call]
        self._open = None
        assert leaf.grad is not None
        returned = self._leave(leaf.grad, self._context(self._entrance, layout))
        self._passes += 1
        return Message("backward", returned)

    def _generate(self, message: Message) -> Message:
        hidden, layout = self._continue(message)
        assert self.generation is not None
        single = TokenLayout(torch.ones(len(hidden), dtype=torch.int64))
        rows = hidden[:, 0] if layout is None else layout.pack(hidden)
        layout = layout or single
        context = self._context(self._exit, layout, "generate", self.generation.token)
        return Message(
            "generate", self.write("activation", self._send(rows, context), layout.lengths)
        )


def _number(message: Message, name: str) -> float:
    value = message.tensors.get(f"scalar/{name}")
    if value is None or not isfinite(number := float(value)) or number < 0:
        raise TransportError(f"{message.type} gives no usable {name}: {value}")
    return number


def _tokens(message: Message) -> int:
    if (tokens := int(_number(message, "tokens"))) < 1:
        raise TransportError("forward says that its batch has no answer token")
    return tokens
