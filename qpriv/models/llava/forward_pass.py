"""`ForwardPass`: what a model is computing just now, for whoever sits inside its decoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from .prepared import PreparedInputs

Mode = Literal["train", "evaluate", "generate"]
"""What a pass is for: a training step, the scores of gold answers, or answers."""


@dataclass
class ForwardPass:
    """One call of the model: the samples it is about, and which of their tokens are still there.

    Whoever drops tokens inside the decoder notes it in ``kept``; whoever sits behind reads its
    layout there. It lasts as long as the call, through all tokens of a generation.

    Args:
        inputs: The batch as the decoder reads it.
        mode: What the pass is for.
        kept: For each row which of its real tokens are left, ``[T_i]`` ascending; None is all.
    """

    inputs: PreparedInputs
    mode: Mode
    kept: tuple[Tensor, ...] | None = None

    def keep(self, places: Sequence[Tensor]) -> None:
        """Note that of the tokens left in each row only some stay.

        Args:
            places: For each row the places among the tokens that are left, ``[T_i]`` ascending.
        """
        if self.kept is None:
            self.kept = tuple(places)
        else:
            self.kept = tuple(
                own[chosen.to(own.device)] for own, chosen in zip(self.kept, places, strict=True)
            )
