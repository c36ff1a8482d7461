"""What a pruner inside the decoder decides, found out on the prompt before anything is trained.

A pass of its own, without gradients, in evaluation mode, and by the base model unless the pruner
asks for the adapters: so the choice does not depend on dropout, it is the same for the gold
answer and for a generated one, and it does not move while adapters train. It ends at the last
stage, and costs as much as the layers before it.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..decoder.layer_inputs import layer_inputs
from ..decoder.sequences import TokenSequences
from ..decoder.stages import StageChoice, StagePruner, StageView
from ..decoder.token_path import shorten_at
from .adapted import AdaptedLlava

Choices = tuple[tuple[StageChoice, ...], ...]
"""For each stage what goes on of each sample."""


@torch.no_grad()
def decide_stages(
    model: AdaptedLlava,
    pruner: StagePruner,
    prompts: TokenSequences,
    tokens: Sequence[Tensor],
    patches: Sequence[Tensor],
    grid: tuple[int, int],
) -> Choices:
    """Return what goes on at each stage.

    Args:
        model: The model.
        pruner: Decides.
        prompts: The prompts, without an answer.
        tokens: Each sample's visual tokens behind the projector, ``[k_i, H]``.
        patches: Which patch each of them is, ``[k_i]``; -1 where it is merged of several.
        grid: Rows and columns of patches.

    Raises:
        ModelError: If a choice does not fit, or attention cannot be computed anew.
    """
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        if not pruner.adapters:
            stack.enter_context(model.without_adapters())
        return _Pass(model, pruner, prompts, tokens, patches, grid).run()


class _Pass:
    """One pass through the decoder, up to the last stage."""

    def __init__(
        self,
        model: AdaptedLlava,
        pruner: StagePruner,
        prompts: TokenSequences,
        tokens: Sequence[Tensor],
        patches: Sequence[Tensor],
        grid: tuple[int, int],
    ) -> None:
        self.decoder: Any = model.language_model
        self.layers, self.pruner, self.grid = model.decoder_layers, pruner, grid
        self.rows, self.patches = prompts, list(patches)
        self.hidden = embed(model, prompts, tokens)
        self.embedded = self._split(self.hidden)
        self._measure()

    def run(self) -> Choices:
        """Return what goes on at each stage."""
        chosen: list[tuple[StageChoice, ...]] = []
        entering = self.hidden
        for number in range(len(self.layers) + 1):
            while len(chosen) < len(self.pruner.stages):
                stage = self.pruner.stages[len(chosen)]
                if stage.depth > number:
                    break
                arriving = entering if stage.place == "exit" else self.hidden
                chosen.append(self._choose(len(chosen), arriving))
            if len(chosen) == len(self.pruner.stages):
                break
            entering = self.hidden
            # past all hooks: nothing crosses a cut here, and nothing is dropped yet
            self.hidden = self.layers[number].forward(self.hidden, **self.told)
        return tuple(chosen)

    def _choose(self, number: int, entering: Tensor) -> tuple[StageChoice, ...]:
        """Ask what goes on of each sample, and go on with that."""
        stage = self.pruner.stages[number]
        layer = self.layers[stage.layer]
        shape = self.rows.attention_mask.shape
        cos, sin = (part.expand(*shape, -1) for part in self.told["position_embeddings"])
        padded = (entering, self.hidden, self.rows.position_ids.expand(shape), cos, sin)
        parts = zip(*map(self._split, padded), strict=True)
        choices = []
        for row, (before, hidden, positions, *rotary) in enumerate(parts):
            start, stop = self.rows.image_spans[row]
            first = int(self.rows.attention_mask[row, :start].sum())
            view = StageView(
                layer=layer,
                entering=before,
                hidden=hidden,
                embedded=self.embedded[row],
                positions=positions,
                rotary=(rotary[0], rotary[1]),
                image=(first, first + stop - start),
                patches=self.patches[row],
                grid=self.grid,
            )
            choices.append(self.pruner.choose(number, view))
        shortening = shorten_at(stage, self.rows, choices, self.pruner.positions)
        if shortening.changes:
            self.hidden, self.rows = shortening.apply(self.hidden), shortening.after
            self.patches = [
                next_patches(ids, choice) for ids, choice in zip(self.patches, choices, strict=True)
            ]
            self._measure()
        return tuple(choices)

    def _measure(self) -> None:
        """Make what layers are told of the rows as they are now."""
        rows, decoder = self.rows, self.decoder
        self.told = layer_inputs(
            decoder.config,
            decoder.rotary_emb,
            self.hidden,
            rows.attention_mask,
            rows.position_ids,
            None,
            0,
        )

    def _split(self, padded: Tensor) -> list[Tensor]:
        """Return the real tokens of each row."""
        return [
            row[mask] for row, mask in zip(padded, self.rows.attention_mask.bool(), strict=True)
        ]


def next_patches(patches: Tensor, choice: StageChoice) -> Tensor:
    """Return which patch each visual token is behind a stage; -1 where it is merged.

    >>> choice = StageChoice(torch.tensor([0, 2]), torch.tensor([[0.0, 1.0, 0.0]]))
    >>> next_patches(torch.tensor([4, 5, 7]), choice).tolist()
    [4, 7, -1]
    """
    merged = patches.new_full((choice.count - len(choice.kept),), -1)
    return torch.cat((patches[choice.kept.to(patches.device)], merged))


def embed(model: AdaptedLlava, rows: TokenSequences, tokens: Sequence[Tensor]) -> Tensor:
    """Return what enters the decoder, ``[B, S, H]``, image ids replaced by visual tokens."""
    embedding: nn.Module = model.stock.get_input_embeddings()
    embedded: Tensor = embedding(rows.input_ids)
    places = torch.zeros_like(rows.input_ids, dtype=torch.bool)
    for row, (start, stop) in enumerate(rows.image_spans):
        places[row, start:stop] = True
    return embedded.masked_scatter(places[..., None], torch.cat(list(tokens)).to(embedded))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module in evaluation mode, and back in its own afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
