"""`OwnGradient`: the terms that a client owes itself, and how a split clips them with the rest."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from qpriv.split.channel import Open

from .clipping import clip_factor, scale_gradients, sum_of_squares


class OwnGradient:
    """The gradient of the terms that a client owes itself, kept apart from that of the answers.

    No number of the server's scales it: it has a clip of its own, and is added when the gradient
    of the answers has been clipped.

    Args:
        parameters: What the client trains.
        clip: The largest norm.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], clip: float) -> None:
        self.parameters, self.clip = parameters, clip
        self._sums: dict[nn.Parameter, Tensor] = {}
        self._opened: Open | None = None

    def watch(self, opened: Open) -> None:
        """Take the terms of an open channel from now on."""
        self._opened = opened

    def take(self, share: float) -> None:
        """Take the terms of the pass that has just gone through, before its backward pass.

        Args:
            share: The pass's share of the client's samples of this step.
        """
        assert self._opened is not None
        self.learn(self._opened.take_terms(), share)

    def learn(self, terms: Sequence[Tensor], share: float) -> None:
        """Add the gradient of some terms; their graph stays, for the gradient of the answers."""
        for term in terms:
            if not term.requires_grad:
                continue
            found = torch.autograd.grad(
                term * share, self.parameters, retain_graph=True, allow_unused=True
            )
            for parameter, new in zip(self.parameters, found, strict=True):
                if new is not None:
                    known = self._sums.get(parameter)
                    self._sums[parameter] = new if known is None else known + new

    @torch.no_grad()
    def add(self, scale: float = 1.0) -> None:
        """Add what was taken, clipped, to the parameters' gradients.

        Args:
            scale: By what those are multiplied, where the loss is scaled.
        """
        factor = clip_factor(sum_of_squares(self._sums.values()), self.clip) * scale
        for parameter, own in self._sums.items():
            own = own * factor
            parameter.grad = own if parameter.grad is None else parameter.grad + own


def clip_parties(
    parties: Iterable[Sequence[nn.Parameter]],
    total: float,
    clip: float,
    own: Iterable[OwnGradient],
    scale: float = 1.0,
) -> None:
    """Clip the gradients of the answers of some parties, then add what clients owe themselves.

    Args:
        parties: What each of them trains.
        total: Sum of squares of the gradients of all that train in this step.
        clip: The largest norm.
        own: The gradients of the clients' own terms.
        scale: By what gradients are multiplied, where the loss is scaled.
    """
    for weights in parties:
        scale_gradients(weights, total, clip)
    for each in own:
        each.add(scale)
