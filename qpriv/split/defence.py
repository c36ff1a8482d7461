"""`Defence`: what the two ends of a cut do so that less can be taken from what crosses.

The base class alone lives here, since the channel runs it; each defence has a file of its own in
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
    """What a defence needs of a run; it is checked before weights load.

    Args:
        clients: Least number of clients.
        together: Whether the clients must step together, so that `Defence.join` sees all parts.
        labels: Whether the server must be told the answers, as in split learning.
        batch_size: Least number of samples of one client in one pass, on average.
        trained: Whether something must train before the first cut, for a term to move it.
    """

    clients: int = 1
    together: bool = False
    labels: bool = False
    batch_size: int = 1
    trained: bool = False


@dataclass(frozen=True)
class Part:
    """What has come from one of the clients that step together.

    Args:
        rows: Its tokens behind ``decode``, one sample after another, ``[sum T_i, d]``.
        context: What the parties know of them, as the client does.
    """

    rows: Tensor
    context: StageContext


class Defence(nn.Module, ABC):
    """Changes what crosses, adds a term of the client's own to its gradient, or both.

    Nothing else in the suite need know of it: a subclass in one file is trained, recorded,
    attacked, counted, resumed and run between real parties. `sender` holds what the client
    trains, and goes where its adapter goes: handed over, or of each client its own. `receiver`
    holds what the server trains. Both are empty modules unless a subclass, or its `build`, sets
    them; other parameters and buffers are not trained.

    Every tensor that is drawn at random is drawn from `StageContext.normal` or
    `StageContext.generator`, so that a resumed run draws the same.
    """

    active_in: frozenset[Mode] = EVERYWHERE
    """In which passes its stages run; its term is asked for where it is active in training."""

    needs = Requirements()
    """What it needs of a run."""

    withdraws: bool = False
    """Whether its encoder may return `Remaining`: fewer rows than come to the cut."""

    def __init__(self) -> None:
        super().__init__()
        self.sender: nn.Module = nn.Module()
        self.receiver: nn.Module = nn.Module()

    @property
    @abstractmethod
    def label(self) -> str:
        """Return its name in results with the settings that tell it apart: ``noise(0.1)``."""

    @property
    def joins(self) -> bool:
        """Return whether it joins the parts of clients that step together."""
        return type(self).join is not Defence.join

    def build(self, hidden: int) -> None:
        """Set `sender` and `receiver`, where they depend on the decoder's width ``hidden``.

        It is called once, before training, with random numbers that are seeded by the run.
        """

    def stages(self, site: Site) -> Stages:
        """Return what the two ends of a cut do; nothing, unless a subclass says so.

        Activations that go up are encoded by the client and decoded by the server; at the second
        cut of a U-shaped split it is the other way round. It is asked anew for each part of a
        pass: what stages share is kept by the defence, not by this call.
        """
        return Stages()

    def loss(self, crossed: Tensor, context: StageContext) -> Tensor | None:
        """Return a term for the client's own gradient, a scalar; None where there is none.

        Asked where a client sends activations in training. The gradient of the term reaches what
        the client trains before the first cut. It does not cross, and is clipped by a norm of its
        own, whatever the server sends or says.

        Args:
            crossed: What crosses, ``[sum T_i, w]``.
            context: What the client knows of it.
        """
        return None

    def width(self, hidden: int) -> int:
        """Return the width of what crosses of tokens of width ``hidden``."""
        return hidden

    def crossing_width(self, hidden: int, mode: Mode) -> int:
        """Return the width of what crosses in passes of one kind."""
        return self.width(hidden) if mode in self.active_in else hidden

    def join(self, parts: Sequence[Part]) -> Sequence[Tensor]:
        """Return what the server computes with in place of each part, in the same shapes.

        Called where clients step together; gradients return through it to all of them.
        """
        return [part.rows for part in parts]
