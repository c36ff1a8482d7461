"""`Defence`: the base class of defences, which change what crosses so that it leaks less.

Only the base class is here, because the channel runs it. Each defence has its own file in
`qpriv.defences`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from qpriv.models.llava.forward_pass import Mode

from .stages import Site, StageContext, Stages

EVERYWHERE: frozenset[Mode] = frozenset({"train", "evaluate", "generate"})


@dataclass(frozen=True)
class Requirements:
    """A defence's requirements of a run, checked before weights load.

    Args:
        clients: Smallest number of clients.
        together: Whether the clients must step together, so that `Defence.join` gets all parts.
        labels: Whether the server must get the answers, as in split learning.
        batch_size: Smallest mean number of samples per client and pass.
        trained: Whether some layer before the first cut must be trained by the defence's loss.
    """

    clients: int = 1
    together: bool = False
    labels: bool = False
    batch_size: int = 1
    trained: bool = False


@dataclass(frozen=True)
class Part:
    """The part of one client, if clients step together.

    Args:
        rows: The client's decoded tokens, one sample after another, ``[sum T_i, d]``.
        context: The client's context of these rows.
    """

    rows: Tensor
    context: StageContext


class Defence(nn.Module, ABC):
    """Changes what crosses, adds a loss term for the client, or both.

    A subclass needs only its own file: the suite trains, records, attacks, counts and resumes it,
    and runs it between real parties. `sender` holds the client's trained weights and follows the
    client's adapter (handed over or private). `receiver` holds the server's trained weights. Both
    are empty modules unless the subclass or its `build` sets them. Other parameters and buffers
    are not trained.

    Draw all random numbers from `StageContext.normal` or `StageContext.generator`, so that a
    resumed run draws the same ones.
    """

    active_in: frozenset[Mode] = EVERYWHERE
    """Modes in which the stages run. `loss` is called if this contains ``train``."""

    needs = Requirements()
    """The defence's requirements of a run."""

    withdraws: bool = False
    """Whether the encoder may return `Remaining`, with fewer rows than it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.sender: nn.Module = nn.Module()
        self.receiver: nn.Module = nn.Module()

    @property
    @abstractmethod
    def label(self) -> str:
        """Return the name in results with its distinguishing settings, such as ``noise(0.1)``."""

    @property
    def joins(self) -> bool:
        """Return whether the defence overrides `join`."""
        return type(self).join is not Defence.join

    def build(self, hidden: int) -> None:
        """Set `sender` and `receiver` if they depend on the decoder's width ``hidden``.

        It is called once before training, with random numbers seeded by the run.
        """

    def stages(self, site: Site) -> Stages:
        """Return the stages at the two ends of a cut; the default has none.

        For activations that go up, the client encodes and the server decodes. At the second cut
        of a U-shaped split, the server encodes and the client decodes. This method is called
        again for each part of a pass, so keep state that stages share in the defence itself.
        """
        return Stages()

    def loss(self, crossed: Tensor, context: StageContext) -> Tensor | None:
        """Return the client's own loss term, a scalar, or None.

        It is called when a client sends activations in training. The term's gradient reaches the
        client's trained weights before the first cut. It does not cross, and it is clipped
        separately, so the server cannot influence it.

        Args:
            crossed: The rows that cross, ``[sum T_i, w]``.
            context: The client's context of these rows.
        """
        return None

    def width(self, hidden: int) -> int:
        """Return the width of the rows that cross, for tokens of width ``hidden``."""
        return hidden

    def crossing_width(self, hidden: int, mode: Mode) -> int:
        """Return the width of the rows that cross in a given mode."""
        return self.width(hidden) if mode in self.active_in else hidden

    def join(self, parts: Sequence[Part]) -> Sequence[Tensor]:
        """Return the rows that replace each part at the server, in the same shapes.

        It is called if clients step together. Gradients flow back through it to all clients.
        """
        return [part.rows for part in parts]
