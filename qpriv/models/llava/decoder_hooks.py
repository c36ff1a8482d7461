"""Hooks that shorten the rows of the running decoder, as a `TokenPath` says.

The model class stays the stock one. Where rows have become shorter, every later layer needs a
mask and rotary embeddings of the new width: in training, at a prompt, and for each generated
token, whose keys lie behind fewer others in the cache. Hooks stay outside of what gradient
checkpointing computes again.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..decoder.layer_inputs import layer_inputs
from ..decoder.sequences import TokenSequences
from ..decoder.stages import Stage
from ..decoder.token_path import Shortening, TokenPath
from .adapted import AdaptedLlava


@contextmanager
def shortening_hooks(
    model: AdaptedLlava, path: TokenPath, stop: int | None = None
) -> Iterator[None]:
    """Let a model's decoder shorten its rows while this is open.

    Only the rows that ``path`` starts with may run meanwhile, and a generation that goes on from
    them. Where no row gets shorter there is no hook at all.

    Args:
        model: The model.
        path: What is dropped where.
        stop: One past the last layer that is concerned, for a party that owns no other; None is
            all of them.
    """
    layers = model.decoder_layers[:stop]
    with ExitStack() as stack:
        for hook in _place(model, layers, path):
            stack.callback(hook.remove)
        yield


def _place(
    model: AdaptedLlava, layers: nn.ModuleList, path: TokenPath
) -> Iterator[torch.utils.hooks.RemovableHandle]:
    changes = [each for each in path.changes if each.stage.layer < len(layers)]
    depths = [*(each.stage.depth for each in changes), len(layers)]
    for shortening, (begin, end) in zip(changes, pairwise(depths), strict=True):
        stage = shortening.stage
        if stage.place == "exit":
            leave = partial(_leave, shortening)
            yield layers[stage.layer].register_forward_hook(leave, with_kwargs=True)
        reach = _Reach(model, shortening, path.start)
        for number in range(begin, end):
            enter = partial(reach.enter, number)
            # what drops tokens at a cut comes after what was dropped on the way to it, and
            # before what is dropped at the entry of the layer behind it
            first = stage != Stage(number, "entry")
            yield layers[number].register_forward_pre_hook(enter, with_kwargs=True, prepend=first)


def _leave(
    shortening: Shortening,
    layer: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: Tensor,
) -> Tensor | None:
    """Shorten what a layer hands on, unless it is a generated token."""
    cache = kwargs.get("cache")
    if cache is not None and cache.get_seq_length(shortening.stage.layer) > shortening.before.width:
        return None
    _require(output, shortening.before)
    return shortening.apply(output)


class _Reach:
    """The layers from one stage to the next, which share mask, positions and rotary embeddings."""

    def __init__(self, model: AdaptedLlava, shortening: Shortening, start: TokenSequences) -> None:
        self.decoder: Any = model.language_model
        self.shortening = shortening
        # how many numbers a row's later tokens move down
        self.shift = _last_positions(start) - _last_positions(shortening.after)
        self.shared: dict[str, Any] = {}

    def enter(
        self, number: int, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give a layer the rows, mask and rotary embeddings of this reach."""
        hidden: Tensor = args[0] if args else kwargs["hidden_states"]
        if number == self.shortening.stage.depth:
            hidden = self._begin(number, hidden, kwargs)
        if args:
            return (hidden, *args[1:]), {**kwargs, **self.shared}
        return args, {**kwargs, "hidden_states": hidden, **self.shared}

    def _begin(self, number: int, hidden: Tensor, kwargs: dict[str, Any]) -> Tensor:
        """Shorten the rows where that is still to do, and make what the layers share."""
        cache, rows = kwargs.get("cache"), self.shortening.after
        past = 0 if cache is None else cache.get_seq_length(number)
        if past == 0 and self.shortening.stage.place == "entry":
            _require(hidden, self.shortening.before)
            hidden = self.shortening.apply(hidden)
        repeats = len(hidden) // len(rows.input_ids)
        mask = rows.attention_mask.repeat_interleave(repeats, dim=0)
        if past == 0:
            _require(hidden, rows)
            positions = rows.position_ids.repeat_interleave(repeats, dim=0)
        else:
            generated = past - rows.width + hidden.shape[1]
            mask = torch.cat((mask, mask.new_ones(len(mask), generated)), dim=1)
            positions = kwargs["position_ids"] - self.shift.repeat_interleave(repeats)[:, None]
        decoder = self.decoder
        # every reach has a length of its own in the cache
        self.shared = layer_inputs(
            decoder.config, decoder.rotary_emb, hidden, mask, positions, cache, number
        )
        return hidden


def _last_positions(rows: TokenSequences) -> Tensor:
    """Return the position of each row's last real token, ``[B]``."""
    mask = rows.attention_mask
    columns = torch.arange(mask.shape[1], device=mask.device)
    last = (columns * mask).argmax(dim=1, keepdim=True)
    return rows.position_ids.expand_as(mask).gather(1, last)[:, 0]


def _require(hidden: Tensor, rows: TokenSequences) -> None:
    if hidden.shape[1] != rows.width or len(hidden) % len(rows.input_ids):
        raise RuntimeError(
            f"hidden states {list(hidden.shape)} are not those of {len(rows.input_ids)} rows of "
            f"{rows.width} tokens: open the hooks for the batch that runs"
        )
