"""`InDecoderPruning`: policies that drop or merge visual tokens between the decoder's layers.

What such a policy drops has been attended to before: what crosses a cut behind a stage still
holds something of it, unlike what is dropped before the decoder. A stage at or behind the cut is
the server's to decide, and the tokens it drops have crossed.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.models.decoder.sequences import Positions
from qpriv.models.decoder.stages import Stage, StageChoice, StageView
from qpriv.models.features import VisualFeatures

from .decision import PruningDecision
from .policy import NoPruning, PruningPolicy

if TYPE_CHECKING:  # importing them takes seconds, and only whoever built a model gets here
    from qpriv.models.llava.prepared import PreparedInputs
    from qpriv.models.llava.vision_language import VisionLanguageModel


@dataclass(frozen=True)
class Sides:
    """Who decides at which stages of a policy.

    Args:
        client: Stages in the client's layers before the first cut, which it decides alone.
        server: Stages in the server's layers; what they drop has crossed.
        tail: Stages in the client's layers behind the second cut of a U-shaped split.
    """

    client: tuple[Stage, ...]
    server: tuple[Stage, ...]
    tail: tuple[Stage, ...] = ()


class InDecoderPruning(PruningPolicy):
    """Shortens the rows at some stages inside the decoder.

    A subclass names its ``stages`` and says in `choose` what goes on behind each of them; the
    model does the rest, in training and in generation. Decisions are made on the prompt alone,
    without gradients, in evaluation mode, in a pass of their own up to the last stage.

    Args:
        positions: ``compact`` numbers what goes on behind a stage without gaps; ``original``
            keeps the numbers, which tells a server behind the stage what was kept.
        adapters: Decide with the adapters; by default the base model decides, so that the choice
            does not move while adapters train.
        restarts: Let what is kept behind the last stage start again before the first layer, so
            that nothing of what is dropped is left in it.
        k_min: Safety floor in patches; None scales the source's 16 of 576 to the grid.
    """

    def __init__(
        self,
        positions: Positions = "compact",
        adapters: bool = False,
        restarts: bool = False,
        k_min: int | None = None,
    ) -> None:
        super().__init__(k_min)
        self.positions: Positions = positions
        self.adapters, self.restarts = adapters, restarts

    @property
    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """Return the stages, in the order in which tokens pass them."""

    @abstractmethod
    def choose(self, number: int, view: StageView) -> StageChoice:
        """Return what goes on of one sample's visual tokens behind a stage.

        Args:
            number: Which of the stages, from 0.
            view: What the decoder holds of the sample's prompt there.
        """

    def first(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        """Return what enters the decoder: everything, unless a subclass says otherwise."""
        return NoPruning().decide(features, samples)

    @torch.no_grad()
    def decide(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        """Return what enters the decoder, and that this policy goes on inside it."""
        return replace(self.first(features, samples), inside=self)

    def side(self, cuts: Sequence[int]) -> Sides:
        """Return who decides at which stages, with the decoder cut before some layers.

        Args:
            cuts: ``(C,)`` of a split, or ``(C_A, C_B)`` of a U-shaped split.
        """
        first, last = cuts[0], cuts[1] if len(cuts) > 1 else float("inf")
        return Sides(
            tuple(stage for stage in self.stages if stage.layer < first),
            tuple(stage for stage in self.stages if first <= stage.layer < last),
            tuple(stage for stage in self.stages if stage.layer >= last),
        )

    @contextmanager
    def hooks(
        self, model: "VisionLanguageModel", inputs: "PreparedInputs", *, prompt: bool = False
    ) -> Iterator[None]:
        """Shorten the rows of a decoder, or of some of its layers, that is run by hand meanwhile.

        `VisionLanguageModel` opens them by itself; this is for whoever calls its layers.

        Args:
            model: The model.
            inputs: What its `prepare` returned for the rows that run.
            prompt: Whether the rows are the prompts, and not those with the gold answer.
        """
        with model.following(inputs.prompt if prompt else inputs.answered):
            yield

    def check_depth(self, num_layers: int) -> None:
        """Check, before weights load, that the stages fit into a decoder.

        Raises:
            ConfigError: If there is none, one is beyond the decoder, or they are out of order.
        """
        named = ", ".join(map(str, self.stages))
        if not self.stages:
            raise ConfigError(f"{self.label} has no stage", remedy="use a policy of another kind")
        for stage in self.stages:
            if not 0 <= stage.layer < num_layers:
                raise ConfigError(
                    f"{self.label} has a stage at {stage}",
                    remedy=f"the decoder has layers 0 to {num_layers - 1}",
                )
        orders = [stage.order for stage in self.stages]
        if orders != sorted(set(orders)):
            raise ConfigError(f"the stages of {self.label} are out of order: {named}")

    def check_split(self, cuts: Sequence[int], *, lossy: bool = False) -> None:
        """Check that each stage can be decided by whoever owns its layer.

        A stage behind a cut is decided from what has crossed, which is what the adapters made and
        the codec left of it.

        Raises:
            ConfigError: If a stage is behind a cut and the policy restarts, decides by the base
                model, or decides from activations that change on their way.
        """
        sides = self.side(cuts)
        if not (behind := (*sides.server, *sides.tail)):
            return
        reasons = {
            "starts again before the first layer": self.restarts,
            "decides by the base model, of which nothing crosses": not self.adapters,
            "decides from activations as they were before the codec": lossy,
        }
        for reason, holds in reasons.items():
            if holds:
                raise ConfigError(
                    f"{self.label} {reason}, but the {behind[0]} is behind the cut {cuts[0]}",
                    where="--model.policy",
                    remedy="cut behind its last stage, or set adapters: true and no codec",
                )

    def check_parties(self, cuts: Sequence[int]) -> None:
        """Check that every stage is before the first cut: a server of layers prunes nothing.

        Raises:
            ConfigError: If one is behind it.
        """
        sides = self.side(cuts)
        if behind := (*sides.server, *sides.tail):
            raise ConfigError(
                f"{self.label} drops tokens at the {behind[0]}, behind the cut {cuts[0]}",
                where="--model.policy",
                remedy="cut behind its last stage, or train in one process",
            )

    def _stage_settings(self) -> tuple[str, ...]:
        """Return what of the settings above stands in a label."""
        settings = [
            *([] if self.positions == "compact" else [f"positions={self.positions}"]),
            *(["adapters"] if self.adapters else []),
            *(["restarts"] if self.restarts else []),
        ]
        return (*settings, *self._floor_setting())


def decision_at(decision: PruningDecision, inputs: "PreparedInputs", cut: int) -> PruningDecision:
    """Return a decision as it stands where the decoder is cut.

    ``kept`` are the patches that cross as tokens of their own, and ``mixing`` says of what the
    others are made.

    Args:
        decision: What was decided before the decoder.
        inputs: What the model's `prepare` made of it.
        cut: The layer before which it is cut.
    """
    if decision.inside is None:
        return decision
    kept = tuple(ids[ids >= 0].sort().values for ids in inputs.patches(cut))
    mixing = inputs.mixing(cut)
    merged = decision.merged if mixing is None else None
    return replace(decision, kept=kept, merged=merged, mixing=mixing, inside=None)
