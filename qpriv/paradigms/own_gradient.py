"""`OwnGradient`: the gradient of a client's own loss terms, and how a split clips it."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from qpriv.split.channel import Open

from .clipping import clip_factor, scale_gradients, sum_of_squares


class OwnGradient:
    """The gradient of a client's own loss terms, kept apart from that of the answer loss.

    The server cannot scale it: it is clipped separately, and added after the gradient of the
    answer loss has been clipped.

    Args:
        parameters: The client's trained weights.
        clip: Largest norm.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], clip: float) -> None:
        self.parameters, self.clip = parameters, clip
        self._sums: dict[nn.Parameter, Tensor] = {}
        self._opened: Open | None = None

    def watch(self, opened: Open) -> None:
        """Set the open channel to take terms from."""
        self._opened = opened

    def take(self, share: float) -> None:
        """Add the gradient of the last forward pass's terms, before its backward pass.

        Args:
            share: The pass's share of the client's samples of this step.
        """
        assert self._opened is not None
        self.learn(self._opened.take_terms(), share)

    def learn(self, terms: Sequence[Tensor], share: float) -> None:
        """Add the gradient of terms; keep the graph for the gradient of the answer loss.

        Args:
            terms: Scalar loss terms.
            share: The pass's share of the client's samples of this step.
        """
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
        """Clip the collected gradient and add it to the parameters' gradients.

        Args:
            scale: Loss scale, by which the parameters' gradients are multiplied.
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
    """Clip the parties' gradients of the answer loss, then add the clients' own gradients.

    Args:
        parties: Trained weights of each party.
        total: Sum of squares of the gradients of all parties that train in this step.
        clip: Largest norm.
        own: Gradients of the clients' own loss terms.
        scale: Loss scale, by which gradients are multiplied.
    """
    for weights in parties:
        scale_gradients(weights, total, clip)
    for each in own:
        each.add(scale)
