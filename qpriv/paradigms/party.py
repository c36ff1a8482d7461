"""`Party`: a party's layers, its optimiser, and the codec of its messages."""

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
    """A party's layers, its optimiser, and the codec of its messages.

    Args:
        recipe: Training recipe of the adapters.
        steps: Optimiser steps of the whole run, which the schedule spans.
        parts: The modules that the party owns, decoder layers first.
        codec: Codec of activations and gradients; None sends them as computed.
        bucket: Messages are padded to a multiple of this many tokens per sample.
        guards: The defence at the cuts, as this party runs it.
        name: Name of the party's adapter, which selects its side of the defence.
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
        # read it from a norm, because adapters may be fp32 on layers that compute in bf16
        self._dtype = _computing_dtype(parts[0])

    @property
    def device(self) -> torch.device:
        """Return the party's device."""
        return self.trained[0].device

    def write(self, kind: str, values: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Encode activations or gradients ``[sum T_i, d]`` as the tensors of a message.

        Args:
            kind: ``activation`` or ``gradient``.
            values: The real tokens, ``[sum T_i, d]``.
            lengths: Real tokens of each sample, ``[B]``.
        """
        codec = self.codec or native(values.dtype)
        parts = codec.encode(fill_rows(values.detach(), lengths, self.bucket))
        return {f"{kind}/{name}": part for name, part in parts.items()}

    def read(self, kind: str, message: Message, lengths: Tensor, mode: Mode = "train") -> Tensor:
        """Decode activations or gradients ``[sum T_i, w]`` from a message.

        Args:
            kind: ``activation`` or ``gradient``.
            message: The message.
            lengths: Real tokens of each sample, ``[B]``.
            mode: Mode of the pass, which determines the width ``w``.

        Raises:
            TransportError: If the tensors do not fit the codec, or are not finite.
        """
        prefix = f"{kind}/"
        parts = {n.removeprefix(prefix): t for n, t in message.tensors.items() if prefix in n}
        count = sum(filled(length, self.bucket) for length in lengths.tolist())
        # encode no rows to learn the dtypes and shapes that the codec produces
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
        """Take an optimiser step, clipped by the global norm of all parties.

        Args:
            total: Sum of squares of all parties' gradients of the answer loss.
            own: Gradient of a client's own loss terms, which is clipped separately.
        """
        clip_parties([self.trained], total, self.recipe.clip, [] if own is None else [own])
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        """Return the state that the party must keep between rounds."""
        return {
            "weights": [weight.detach().clone() for weight in self.trained],
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "guards": {n: v.detach().clone() for n, v in self.guards.untrained().items()},
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned, and drop any step in progress."""
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
