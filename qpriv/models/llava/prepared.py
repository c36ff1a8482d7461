"""`PreparedInputs`: a batch as the language model reads it, made once for all that is done with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling

from qpriv.errors import ModelError

from ..batch import VQABatch
from ..decoder.sequences import Positions, TokenSelection, TokenSequences
from ..decoder.stages import Stage, StageChoice, StagePruner
from ..decoder.token_path import Shortening, TokenPath, shorten_at
from .deciding import Choices, next_patches


class MakeRows(Protocol):
    """Makes the rows that enter the first layer, shortened to what a selection keeps."""

    def __call__(self, selection: TokenSelection | None, *, prompt: bool) -> TokenSequences:
        """Return the rows of the prompt, padded left, or those with the answer, padded right."""
        ...


@dataclass(frozen=True)
class Kept:
    """Patches that stay, as if they had been chosen before the decoder.

    Args:
        kept: For each sample their indices, ``[k_b]``.
    """

    kept: tuple[Tensor, ...]
    merged: None = None
    mixing: None = None


@dataclass(frozen=True)
class StageReport:
    """What a stage leaves of the image.

    Args:
        stage: The stage.
        kept: For each sample the patches that go on as they are, ``[k_b]``; they are numbered as
            on the original grid.
    """

    stage: Stage
    kept: tuple[Tensor, ...]


class PreparedInputs:
    """Rows of tokens and projected patches of a batch, with all that is dropped on the way.

    Training, answering and scoring read the same object, so that the rows are shortened, the
    image projected and the stages of a pruner inside the decoder decided once.

    Args:
        batch: The samples.
        selection: What was kept before the decoder; None is everything.
        kept: What of each sample enters the projector, ``[k_i, D]``.
        project: The projector, for all samples in one call.
        rows: Makes the rows for the first layer.
        num_patches: Number of patches ``N`` before pruning.
        stages: Where a pruner inside the decoder shortens the rows.
        choices: What goes on at each of them.
        positions: Whether what goes on there is numbered anew.
    """

    def __init__(
        self,
        batch: VQABatch,
        selection: TokenSelection | None,
        kept: Sequence[Tensor],
        project: Callable[[Sequence[Tensor]], Sequence[Tensor]],
        rows: MakeRows,
        num_patches: int,
        stages: Sequence[Stage] = (),
        choices: Choices = (),
        positions: Positions = "compact",
    ) -> None:
        self.batch, self.selection = batch, selection
        self.num_patches, self.stages = num_patches, tuple(stages)
        self.kept, self._project, self._rows = tuple(kept), project, rows
        self._choices, self._positions = choices, positions

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.batch)

    @cached_property
    def tokens(self) -> tuple[Tensor, ...]:
        """Return each sample's visual tokens behind the projector, ``[k_i, H]``."""
        return tuple(self._project(self.kept))

    @cached_property
    def answered(self) -> TokenPath:
        """Return the rows with the gold answer, padded right."""
        return self._path(self._rows(self.selection, prompt=False))

    @cached_property
    def prompt(self) -> TokenPath:
        """Return the rows of the prompt alone, padded left."""
        return self._path(self._rows(self.selection, prompt=True))

    def decided(self, pruner: StagePruner, choices: Choices) -> "PreparedInputs":
        """Return the inputs with what a pruner has chosen inside the decoder.

        Where it restarts, what it kept behind its last stage enters before the first layer, and
        nothing is dropped any more.

        Raises:
            ModelError: If it restarts with merged tokens, which have been nowhere but there.
        """
        decided = PreparedInputs(
            self.batch,
            self.selection,
            self.kept,
            self._project,
            self._rows,
            self.num_patches,
            pruner.stages,
            choices,
            pruner.positions,
        )
        if not pruner.restarts:
            return decided
        merges = self.selection is not None and (
            self.selection.merged is not None or self.selection.mixing is not None
        )
        first, last = decided._patches(0), decided._patches(len(choices))
        if merges or any(bool((ids < 0).any()) for ids in last):
            raise ModelError(
                "merged tokens cannot start again before the decoder",
                remedy="keep patches, or merge where the decoder goes on",
            )
        kept = [
            row[torch.searchsorted(ids, chosen).to(row.device)]
            for row, ids, chosen in zip(self.kept, first, last, strict=True)
        ]
        selection = Kept(tuple(last))
        return PreparedInputs(
            self.batch, selection, kept, self._project, self._rows, self.num_patches
        )

    @property
    def image_outputs(self) -> dict[str, BaseModelOutputWithPooling]:
        """Return the visual tokens as LLaVA takes them.

        Made anew for every call: beam search repeats its entries in place.
        """
        return {"image": BaseModelOutputWithPooling(pooler_output=list(self.tokens))}

    def patches(self, cut: int) -> tuple[Tensor, ...]:
        """Return which patch each visual token is that crosses before a layer, ``[t_i]``.

        A token that is merged of several has -1, unless it takes the place of a kept patch.
        """
        return tuple(self._patches(self._passed(cut)))

    def mixing(self, cut: int) -> tuple[Tensor, ...] | None:
        """Return with which weights patches entered what crosses before a layer, ``[t_i, N]``.

        None where nothing is merged, or where a policy merges and does not say of what.
        """
        passed = self._choices[: self._passed(cut)]
        first = None if self.selection is None else self.selection.mixing
        if first is None:
            unknown = self.selection is not None and self.selection.merged is not None
            merges = any(choice.merging is not None for choices in passed for choice in choices)
            if unknown or not merges:
                return None
            first = tuple(torch.eye(self.num_patches)[ids.cpu()] for ids in self._patches(0))
        rows = [weights.float().cpu() for weights in first]
        for choices in passed:
            rows = [mixed(arriving, choice) for arriving, choice in zip(rows, choices, strict=True)]
        return tuple(rows)

    def reports(self) -> tuple[StageReport, ...]:
        """Return what each stage leaves of the image, in the order of the stages."""
        return tuple(
            StageReport(stage, tuple(ids[ids >= 0] for ids in self._patches(number + 1)))
            for number, stage in enumerate(self.stages)
        )

    def visual_counts(self, cut: int) -> Tensor:
        """Return the number of visual tokens that cross before a layer, ``[B]`` int64."""
        return self._counts(self._passed(cut))

    def mean_visual_counts(self, num_layers: int) -> Tensor:
        """Return the number of visual tokens that a layer computes on, mean over layers, ``[B]``."""
        depths = [0, *(stage.depth for stage in self.stages), num_layers]
        layers = torch.tensor(depths).diff().double()
        counts = [self._counts(passed) for passed in range(len(self.stages) + 1)]
        return layers @ torch.stack(counts).double() / num_layers

    def _counts(self, passed: int) -> Tensor:
        return torch.tensor([len(ids) for ids in self._patches(passed)], dtype=torch.int64)

    def _patches(self, passed: int) -> list[Tensor]:
        """Return which patch each visual token is behind some of the stages."""
        if self.selection is None:
            found = [torch.arange(self.num_patches)] * len(self)
        else:
            found = [
                kept if len(kept) == len(tokens) else torch.full((len(tokens),), -1)
                for kept, tokens in zip(self.selection.kept, self.kept, strict=True)
            ]
        for choices in self._choices[:passed]:
            found = [next_patches(ids, choice) for ids, choice in zip(found, choices, strict=True)]
        return found

    def _passed(self, cut: int) -> int:
        """Return how many stages lie before a layer, its own entry not among them."""
        return sum(stage.layer < cut for stage in self.stages)

    def _path(self, start: TokenSequences) -> TokenPath:
        shortenings: list[Shortening] = []
        rows = start
        for stage, choices in zip(self.stages, self._choices, strict=True):
            shortenings.append(shorten_at(stage, rows, choices, self._positions))
            rows = shortenings[-1].after
        return TokenPath(start, tuple(shortenings))


def mixed(arriving: Tensor, choice: StageChoice) -> Tensor:
    """Return with which weights patches enter what goes on behind a stage, ``[t, N]``.

    Args:
        arriving: With which weights they enter what arrives, ``[n, N]``.
        choice: What goes on.

    >>> choice = StageChoice(torch.tensor([0]), torch.tensor([[0.0, 0.5]]))
    >>> mixed(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.4, 0.6]]), choice).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.20000000298023224, 0.30000001192092896]]
    """
    kept = arriving[choice.kept.cpu()]
    if choice.merging is None:
        return kept
    return torch.cat((kept, choice.merging.float().cpu() @ arriving))
