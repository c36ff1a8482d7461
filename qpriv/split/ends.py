"""`Ends`: what the two ends of a cut do to what crosses it, in one process or apart."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from qpriv.models.llava.forward_pass import Mode

from .defence import Defence
from .stages import Part, Remaining, Stage, StageContext, Stages
from .transcript import Direction


@dataclass(frozen=True)
class Ends:
    """Runs the stages of a cut, at whichever of its ends somebody is.

    Hooks in one process play both ends of a cut; of parties that are apart each plays its own.
    All find here which stages run in a pass and in which order: a sender's are the defence's own
    and then the attacker's, a receiver undoes them in reverse.

    Args:
        defence: What the run does to what crosses, or None.
        tap: What an attacker does there besides.
    """

    defence: Defence | None = None
    tap: Stages = field(default_factory=Stages)

    @property
    def idle(self) -> bool:
        """Return whether nobody does anything."""
        return self.defence is None and not self.tap

    def width(self, hidden: int, mode: Mode) -> int:
        """Return the width of what crosses of tokens of width ``hidden``."""
        return hidden if self.defence is None else self.defence.crossing_width(hidden, mode)

    def encode(
        self, rows: Tensor, context: StageContext
    ) -> tuple[Tensor, StageContext, Tensor | None]:
        """Return what a sender makes of activations.

        Args:
            rows: Real tokens one after another, ``[sum T_i, d]``.
            context: What the sender knows of them.

        Returns:
            What crosses, its context, and which of the rows it stands for; None for all of them.

        Raises:
            ValueError: If a stage returns another number of rows without saying which.
        """
        places: Tensor | None = None
        for stage in self._stages("encode", context):
            made = stage(rows, context.of("encode"))
            if isinstance(made, Remaining):
                context = context.left(made.places)
                places = made.places if places is None else places[made.places]
                made = made.rows
            rows = _as_many(made, context, "encode")
        return rows, context, places

    def decode(self, rows: Tensor, context: StageContext) -> Tensor:
        """Return what a receiver computes with of activations, ``[sum T_i, d]``."""
        return self._passed("decode", rows, context)

    def encode_gradient(self, gradient: Tensor, context: StageContext) -> Tensor:
        """Return what crosses of the gradient of activations, by whoever has received these."""
        return self._passed("encode_gradient", gradient, context)

    def decode_gradient(self, gradient: Tensor, context: StageContext) -> Tensor:
        """Return what goes on of a gradient that has come back to the sender of activations."""
        return self._passed("decode_gradient", gradient, context)

    def change_gradients(self, context: StageContext) -> bool:
        """Return whether anything is done to gradients on their way back."""
        parts: tuple[Part, ...] = ("encode_gradient", "decode_gradient")
        return any(True for part in parts for _ in self._stages(part, context))

    def term(self, crossed: Tensor, context: StageContext) -> Tensor | None:
        """Return the defence's term for the gradient of a client that sends in training.

        Args:
            crossed: What crosses, ``[sum T_i, w]``.
            context: What the client knows of it.

        Returns:
            A scalar, or None where there is no term.
        """
        own, sends = self.defence, context.site.direction is Direction.UP
        if own is None or not sends or context.mode != "train" or "train" not in own.active_in:
            return None
        return own.loss(crossed, context)

    def _passed(self, part: Part, rows: Tensor, context: StageContext) -> Tensor:
        told = context.of(part)
        for stage in self._stages(part, context):
            made = stage(rows, told)
            if isinstance(made, Remaining):
                raise ValueError(f"only what is sent can be withdrawn, not by {part}")
            rows = _as_many(made, told, part)
        return rows

    def _stages(self, part: Part, context: StageContext) -> Iterable[Stage]:
        """Return the stages of one part, in the order in which they run."""
        own, hands = self.defence, [self.tap]
        if own is not None and context.mode in own.active_in:
            hands.insert(0, own.stages(context.site))
        if part.startswith("decode"):
            hands.reverse()
        return [stage for hand in hands if (stage := getattr(hand, part)) is not None]


def _as_many(rows: Tensor, context: StageContext, part: Part) -> Tensor:
    expected = sum(context.lengths)
    if len(rows) != expected:
        raise ValueError(
            f"{part} made {len(rows)} rows of {expected}: return `Remaining` to withdraw some"
        )
    return rows
