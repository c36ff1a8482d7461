"""`Ends`: runs the stages at the two ends of a cut, in one process or in several."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from qpriv.models.llava.forward_pass import Mode

from .defence import Defence
from .stages import Part, Remaining, Stage, StageContext, Stages
from .transcript import Direction


@dataclass(frozen=True)
class Ends:
    """Runs the stages of a cut in their order.

    Hooks in one process play both ends of a cut; separate parties play one end each. A sender
    runs the defence's stages and then the attacker's. A receiver runs them in reverse order.

    Args:
        defence: The run's defence, or None.
        tap: An attacker's additional stages.
    """

    defence: Defence | None = None
    tap: Stages = field(default_factory=Stages)

    @property
    def idle(self) -> bool:
        """Return whether there is neither a defence nor a tap."""
        return self.defence is None and not self.tap

    def width(self, hidden: int, mode: Mode) -> int:
        """Return the width of the rows that cross, for tokens of width ``hidden``."""
        return hidden if self.defence is None else self.defence.crossing_width(hidden, mode)

    def encode(
        self, rows: Tensor, context: StageContext
    ) -> tuple[Tensor, StageContext, Tensor | None]:
        """Encode activations at their sender.

        Args:
            rows: Real tokens, one sample after another, ``[sum T_i, d]``.
            context: The sender's context of these rows.

        Returns:
            The rows that cross, their context, and their indices among the given rows; None if
            no row was withdrawn.

        Raises:
            ValueError: If a stage changes the number of rows without returning `Remaining`.
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
        """Decode activations at their receiver, ``[sum T_i, d]``."""
        return self._passed("decode", rows, context)

    def encode_gradient(self, gradient: Tensor, context: StageContext) -> Tensor:
        """Encode the gradient of activations at the activations' receiver."""
        return self._passed("encode_gradient", gradient, context)

    def decode_gradient(self, gradient: Tensor, context: StageContext) -> Tensor:
        """Decode a gradient that has returned to the sender of the activations."""
        return self._passed("decode_gradient", gradient, context)

    def change_gradients(self, context: StageContext) -> bool:
        """Return whether any stage changes gradients."""
        parts: tuple[Part, ...] = ("encode_gradient", "decode_gradient")
        return any(True for part in parts for _ in self._stages(part, context))

    def term(self, crossed: Tensor, context: StageContext) -> Tensor | None:
        """Return the defence's loss term for a client that sends in training.

        Args:
            crossed: The rows that cross, ``[sum T_i, w]``.
            context: The client's context of these rows.

        Returns:
            A scalar, or None without a term.
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
        """Return the stages of one part in running order."""
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
