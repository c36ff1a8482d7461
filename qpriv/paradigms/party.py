"""`Party`: some layers, what they train with, and how what they send is written."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from qpriv.models.llava.forward_pass import Mode
from qpriv.split.codecs import Codec, native
from qpriv.split.ends import Ends
from qpriv.split.layers import Segment, trained
from qpriv.split.padding import fill_rows, filled, strip_rows
from qpriv.transport.errors import TransportError
from qpriv.transport.message import Message

from .guards import Guards
from .own_gradient import OwnGradient, clip_parties
from .party_adapters import SERVER
from .recipe import LoraRecipe


class Party:
    """Some parts, what they train with, and the codec of what they send.

    Args:
        recipe: How adapters are trained.
        steps: Optimiser steps of the whole run, which the schedule spans.
        parts: The modules the party owns, decoder layers first.
        codec: How activations and gradients are written; None as they are computed.
        bucket: Messages are filled to a multiple of so many tokens a sample.
        guards: The defence at the cuts, as this party runs it.
        name: Name of the party's adapter: it trains its side of the defence.
    """

    def __init__(
        self,
        recipe: LoraRecipe,
        steps: int,
        *parts: Segment,
        codec: Codec | None = None,
        bucket: int = 1,
        guards: Guards | None = None,
        name: str = SERVER,
    ) -> None:
        self.recipe, self.parts = recipe, parts
        self.guards = guards or Guards()
        self.ends = Ends(self.guards.of(0))
        self.trained = [*trained(*parts), *self.guards.trained(name)]
        self.optimizer: Optimizer = recipe.optimizer(self.trained)
        self.scheduler: LRScheduler = recipe.scheduler(self.optimizer, steps)
        self.codec, self.bucket = codec, bucket
        config = parts[0].config
        self.width, self.longest = int(config.hidden_size), int(config.max_position_embeddings)
        # adapters may be kept in fp32 on layers that compute in bf16: a norm tells
        self._dtype = _computing_dtype(parts[0])

    @property
    def device(self) -> torch.device:
        """Return where the party computes."""
        return self.trained[0].device

    def write(self, kind: str, values: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Return what crosses of activations or gradients ``[sum T_i, d]``."""
        codec = self.codec or native(values.dtype)
        parts = codec.encode(fill_rows(values.detach(), lengths, self.bucket))
        return {f"{kind}/{name}": part for name, part in parts.items()}

    def read(self, kind: str, message: Message, lengths: Tensor, mode: Mode = "train") -> Tensor:
        """Return activations or gradients ``[sum T_i, w]`` as they arrive at this party.

        Raises:
            TransportError: If they are not what the codec writes, or not finite.
        """
        prefix = f"{kind}/"
        parts = {n.removeprefix(prefix): t for n, t in message.tensors.items() if prefix in n}
        count = sum(filled(length, self.bucket) for length in lengths.tolist())
        # the codec itself shows what a message of this many tokens looks like
        codec = self.codec or native(self._dtype)
        sample = codec.encode(torch.zeros(0, self.ends.width(self.width, mode), dtype=self._dtype))
        for name in sample.keys() | parts.keys():
            found, form = parts.get(name), sample.get(name)
            expected = None if form is None else (form.dtype, (count, *form.shape[1:]))
            if found is None or (found.dtype, tuple(found.shape)) != expected:
                raise TransportError(
                    f"{prefix}{name} is {_form(found)}, not {_form_of(expected)}",
                    remedy="give both parties the same codec, bucket, defence and model",
                )
        rows = codec.decode(parts, self._dtype)
        if not bool(rows.isfinite().all()):
            raise TransportError(f"{kind} holds numbers that are not finite")
        return strip_rows(rows, lengths, self.bucket)

    def update(self, total: float, own: OwnGradient | None = None) -> None:
        """Take an optimiser step, clipped by the squared norm of all parties together.

        Args:
            total: The sum of squares of the gradients of the answers' loss.
            own: The gradient of a client's own terms, which has a clip of its own.
        """
        clip_parties([self.trained], total, self.recipe.clip, [] if own is None else [own])
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        """Return what the party must remember between rounds."""
        return {
            "weights": [weight.detach().clone() for weight in self.trained],
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "guards": {n: v.detach().clone() for n, v in self.guards.untrained().items()},
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` returned; what is under way is forgotten."""
        for weight, value in zip(self.trained, state["weights"], strict=True):
            weight.copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.optimizer.zero_grad()
        self.guards.load_untrained(state.get("guards", {}))


def _computing_dtype(segment: Segment) -> torch.dtype:
    norms = (v for n, v in segment.layers.named_parameters() if n.endswith("layernorm.weight"))
    return next(norms).dtype


def _form(tensor: Tensor | None) -> str:
    return _form_of(None if tensor is None else (tensor.dtype, tuple(tensor.shape)))


def _form_of(form: tuple[torch.dtype, tuple[int, ...]] | None) -> str:
    return "absent" if form is None else f"{form[0]} of shape {list(form[1])}"
