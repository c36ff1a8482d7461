"""Stages: the places inside the decoder where visual tokens are dropped or merged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from qpriv.errors import ModelError

from .sequences import Positions, TokenSelection


@dataclass(frozen=True, order=True)
class Stage:
    """One place where a pruner shortens the rows.

    Tokens are judged by the queries and keys of ``layer``. At its ``entry`` they are dropped
    before it runs; at its ``exit`` it has run on all of them, and its cache holds all of them.
    Whoever owns the layer decides.

    Args:
        layer: A decoder layer, from 0.
        place: ``entry`` or ``exit``.

    >>> [stage.depth for stage in (Stage(3, "entry"), Stage(3, "exit"))]
    [3, 4]
    """

    layer: int
    place: Literal["entry", "exit"] = "exit"

    @property
    def depth(self) -> int:
        """Return the first layer that no longer sees what was dropped."""
        return self.layer if self.place == "entry" else self.layer + 1

    @property
    def order(self) -> tuple[int, bool]:
        """Return what stages are sorted by: an exit comes before the next layer's entry."""
        return self.depth, self.place == "entry"

    def __str__(self) -> str:
        """Return such as ``exit of layer 2``."""
        return f"{self.place} of layer {self.layer}"


@dataclass(frozen=True)
class StageChoice:
    """What goes on of one sample's visual tokens behind a stage.

    Args:
        kept: Which of the visual tokens that arrive go on as they are, sorted and unique, ``[k]``
            int64.
        merging: Weights with which the tokens that arrive enter new ones, which stand behind the
            kept, ``[m, n]``; None where nothing is merged.
    """

    kept: Tensor
    merging: Tensor | None = None

    def check(self, arriving: int) -> None:
        """Check the choice against the number ``n`` of visual tokens that arrive.

        Raises:
            ModelError: If it does not fit, or would make more of them.
        """
        kept = self.kept
        if kept.dtype != torch.int64 or kept.dim() != 1:
            raise ModelError(f"kept tokens are {kept.dtype} of shape {list(kept.shape)}")
        inside = len(kept) == 0 or (int(kept[0]) >= 0 and int(kept[-1]) < arriving)
        if not inside or bool((kept.diff() <= 0).any()):
            raise ModelError(f"kept tokens are not sorted, unique and below {arriving}")
        if self.merging is None:
            return
        shape = tuple(self.merging.shape)
        if len(shape) != 2 or shape[1] != arriving or not bool(self.merging.isfinite().all()):
            raise ModelError(f"weights of shape {list(shape)} do not merge {arriving} tokens")
        if len(kept) + shape[0] > arriving:
            raise ModelError(f"{len(kept)} kept and {shape[0]} merged are more than {arriving}")

    @property
    def count(self) -> int:
        """Return the number of visual tokens that go on."""
        return len(self.kept) + (0 if self.merging is None else len(self.merging))

    def keeps_all(self, arriving: int) -> bool:
        """Return whether every token goes on as it is, and no other."""
        return len(self.kept) == arriving and self.count == arriving


@dataclass(frozen=True)
class StageView:
    """What the decoder holds of one sample's prompt where a stage decides; no answer is in it.

    Args:
        layer: The stage's layer, whose attention is asked for.
        entering: What enters that layer, ``[T, d]``.
        hidden: What would go on at the stage: the same at its entry, its output at its exit.
        embedded: What entered the decoder, ``[T0, d]``, with all visual tokens it was given.
        positions: Positions of the tokens, ``[T]``.
        rotary: Cosines and sines of the positions, ``[T, head width]`` each.
        image: First visual token and the one after the last.
        patches: Which patch each visual token is, ``[n]``; -1 where it is merged of several.
        grid: Rows and columns of patches.
    """

    layer: nn.Module
    entering: Tensor
    hidden: Tensor
    embedded: Tensor
    positions: Tensor
    rotary: tuple[Tensor, Tensor]
    image: tuple[int, int]
    patches: Tensor
    grid: tuple[int, int]

    def __len__(self) -> int:
        """Return the number of tokens ``T``."""
        return len(self.hidden)

    @property
    def query(self) -> int:
        """Return the last token of the prompt, which asks for the answer."""
        return len(self) - 1

    @property
    def visual(self) -> Tensor:
        """Return the visual tokens that would go on, ``[n, d]``."""
        return self.hidden[slice(*self.image)]

    def heads(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries and keys, rotated to their positions, and values, ``[heads, T, w]`` each.

        Raises:
            ModelError: If the layer's attention is not of the form of Llama's.
        """
        # importing it takes seconds, and only whoever built a model gets here
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv

        attention: Any = self.layer.self_attn
        if not all(hasattr(attention, name) for name in ("q_proj", "k_proj", "v_proj")) or hasattr(
            attention, "q_norm"
        ):
            raise ModelError(
                f"the attention of {type(attention).__name__} cannot be computed anew",
                remedy="use a backbone of the Llama, Mistral or Qwen2 family",
            )
        normed = self.layer.input_layernorm(self.entering[None])  # type: ignore[operator]
        shape = (1, len(self), -1, attention.head_dim)
        queries, keys, values = (
            part(normed).view(shape).transpose(1, 2)
            for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        cos, sin = (part[None] for part in self.rotary)
        queries, keys = apply_rotary_pos_emb(queries, keys, cos, sin)
        groups = attention.num_key_value_groups
        return queries[0], repeat_kv(keys, groups)[0], repeat_kv(values, groups)[0]

    def logits(self, rows: Tensor | None = None) -> Tensor:
        """Return the scores before the softmax, ``[heads, rows, T]`` float32, -inf ahead of a row.

        Args:
            rows: The tokens that ask, ``[rows]``; None is the last of the prompt.
        """
        queries, keys, _ = self.heads()
        asking = torch.tensor([self.query], device=keys.device) if rows is None else rows
        attention: Any = self.layer.self_attn
        scores = queries[:, asking].float() @ keys.float().transpose(1, 2) * attention.scaling
        ahead = torch.arange(len(self), device=keys.device) > asking[:, None]
        masked: Tensor = scores.masked_fill(ahead, -torch.inf)
        return masked

    def attention(self, rows: Tensor | None = None) -> Tensor:
        """Return the attention weights over the whole row, ``[heads, rows, T]`` float32.

        Args:
            rows: The tokens that ask, ``[rows]``; None is the last of the prompt.
        """
        return self.logits(rows).softmax(dim=-1)


class StagePruner(Protocol):
    """What the model needs of a policy that goes on inside the decoder."""

    @property
    def stages(self) -> Sequence[Stage]:
        """Return where it shortens the rows, in their order."""
        ...

    @property
    def positions(self) -> Positions:
        """Return whether the tokens that go on are numbered anew or keep their numbers."""
        ...

    @property
    def adapters(self) -> bool:
        """Return whether it decides with the adapters, or by the base model."""
        ...

    @property
    def restarts(self) -> bool:
        """Return whether what it keeps starts again before the first layer."""
        ...

    def choose(self, number: int, view: StageView) -> StageChoice:
        """Return what goes on behind one stage of one sample.

        Args:
            number: Which of the stages.
            view: What the decoder holds there.
        """
        ...


class Decision(TokenSelection, Protocol):
    """A whole pruning decision: what is kept before the decoder, and who goes on inside it."""

    @property
    def inside(self) -> StagePruner | None:
        """Return the pruner that goes on inside the decoder, or None."""
        ...
