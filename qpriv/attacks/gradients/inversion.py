"""DLG and iDLG: find an input whose gradient is the one that was observed.

Zhu et al. 2019 (arXiv:1906.08935, algorithm 1) optimise input and label together; Zhao et al. 2020
(arXiv:2001.02610) first recover the label analytically. Their loop takes L-BFGS steps of a fixed
length, checks convergence every ten iterations, and fails if it diverges. Here a line search
prevents divergence, every evaluation is checked, and a stalled search restarts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot
from torch.optim import LBFGS

from qpriv.declaration import Attack, Row
from qpriv.errors import ConfigError

from ..threat import ThreatModel
from .label_recovery import HeadGradient, recover_labels

Method = Literal["dlg", "idlg"]

ATTACKS = (
    Attack(
        name="gradient_inversion",
        title="Gradient inversion (DLG, iDLG)",
        rows=(
            Row(
                what="DLG, iDLG: `qpriv.attacks.gradients.inversion`",
                who="server; no",
                holds="one gradient and the network",
                knows="not applicable",
                measures="images solved, squared error",
                beside="the published loop in the same run",
                source="Zhu et al. 2019; Zhao et al. 2020",
            ),
        ),
    ),
)

ClassifierGradient = Callable[[Tensor, Tensor], Sequence[Tensor]]
"""From an input ``[1, ...]`` and class probabilities ``[1, C]`` to the gradient of every weight,
with its graph. The last two are those of the head: weight, then bias."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The budget of gradient matching.

    Args:
        evaluations: Largest number of gradient evaluations per attempt.
        restarts: Largest number of further attempts, each from a new random start.
        tolerance: Squared distance of the gradients, as a share of the observed one's square, at
            which the input counts as found.
        history: History size of L-BFGS.

    Raises:
        ConfigError: If a number is out of range.
    """

    evaluations: int = 1200
    restarts: int = 3
    tolerance: float = 1e-9
    history: int = 100

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.evaluations < 1 or self.restarts < 0 or self.tolerance <= 0 or self.history < 1:
            raise ConfigError(f"{self} cannot work", remedy="choose positive numbers")


@dataclass(frozen=True)
class Match:
    """The best match found.

    Args:
        unknowns: The optimised variables.
        distance: Squared distance of the gradients as a share of the observed one's square.
        solved: Whether the distance is within the tolerance.
        evaluations: Gradient evaluations in all attempts.
        attempts: Number of attempts.
    """

    unknowns: tuple[Tensor, ...]
    distance: float
    solved: bool
    evaluations: int
    attempts: int


def gradient_norm(gradient: Sequence[Tensor]) -> float:
    """Return the L2 norm over all tensors of a gradient; near zero nothing can be recovered.

    >>> gradient_norm([torch.tensor([3.0]), torch.tensor([[4.0]])])
    5.0
    """
    return math.sqrt(sum(float(part.double().square().sum()) for part in gradient))


def match_gradients(
    gradient: Callable[[Sequence[Tensor]], Sequence[Tensor]],
    observed: Sequence[Tensor],
    draw: Callable[[], Sequence[Tensor]],
    budget: Budget,
) -> Match:
    """Search for unknowns whose gradient equals the observed one; return the best match.

    Args:
        gradient: Maps unknowns to gradients in the order of ``observed``, with their graph.
        observed: The gradient that the attacker saw.
        draw: Returns a random start.
        budget: The budget of the search.

    Raises:
        ConfigError: If the observed gradient is zero, and so reveals nothing.
    """
    scale = gradient_norm(observed) ** 2
    if scale == 0:
        raise ConfigError("the observed gradient is zero", remedy="attack an earlier epoch")
    search = _Search(gradient, observed, scale, budget)
    for attempt in range(1, budget.restarts + 2):
        search.attempt(draw())
        if search.distance <= budget.tolerance:
            break
    solved = search.distance <= budget.tolerance
    return Match(search.best, search.distance, solved, search.evaluations, attempt)


_OBJECTIVE_SCALE = 1e6
"""What the search minimises in multiples of the distance: `torch.optim.LBFGS` drops curvature
below an absolute 1e-10 and would crawl near the end."""


class _Search:
    """Matches gradients from several starts and keeps the best point."""

    def __init__(
        self,
        gradient: Callable[[Sequence[Tensor]], Sequence[Tensor]],
        observed: Sequence[Tensor],
        scale: float,
        budget: Budget,
    ) -> None:
        self._gradient, self._observed, self._scale = gradient, observed, scale
        self._budget = budget
        self.best: tuple[Tensor, ...] = ()
        self.distance = math.inf
        self.evaluations = 0

    def attempt(self, start: Sequence[Tensor]) -> None:
        """Run L-BFGS from a start until it is done, stalls or has used up its evaluations."""
        self._unknowns = [value.detach().clone().requires_grad_() for value in start]
        self.best = self.best or tuple(value.detach().clone() for value in start)
        optimizer = LBFGS(
            self._unknowns,
            max_iter=self._budget.evaluations,
            max_eval=self._budget.evaluations,
            history_size=self._budget.history,
            line_search_fn="strong_wolfe",
            # it ends by the tolerance of the budget; its own only say that it stalls
            tolerance_grad=0,
            tolerance_change=1e-14,
        )
        try:
            optimizer.step(self._evaluate)  # type: ignore[no-untyped-call]
        except _EndOfAttempt:
            return

    def _evaluate(self) -> float:
        self.evaluations += 1
        found = self._gradient(self._unknowns)
        loss = (
            sum(
                (
                    (own - seen).square().sum()
                    for own, seen in zip(found, self._observed, strict=True)
                ),
                start=torch.zeros((), device=found[0].device),
            )
            / self._scale
        )
        distance = float(loss.detach())
        if not math.isfinite(distance):
            raise _EndOfAttempt
        if distance < self.distance:
            self.distance = distance
            self.best = tuple(value.detach().clone() for value in self._unknowns)
        if distance <= self._budget.tolerance:
            raise _EndOfAttempt
        slopes = torch.autograd.grad(loss * _OBJECTIVE_SCALE, self._unknowns)
        for unknown, slope in zip(self._unknowns, slopes, strict=True):
            unknown.grad = slope
        return distance * _OBJECTIVE_SCALE


class _EndOfAttempt(Exception):
    """Ends an attempt: the input is found, or the search has failed."""


@dataclass(frozen=True)
class Inversion:
    """The result of inverting one observed gradient.

    Args:
        image: The recovered input, ``[1, ...]``.
        label: The recovered class.
        gradient_norm: L2 norm of the observed gradient.
        match: The best match, with its distance and cost.
    """

    image: Tensor
    label: int
    gradient_norm: float
    match: Match


class GradientInversion:
    """Recovers one input and its label from the gradient of a classifier.

    Args:
        method: ``idlg`` recovers the label from the head's gradient; ``dlg`` optimises it too.
        budget: The budget of gradient matching.
        seed: Seed of the random starts.
    """

    def __init__(
        self, method: Method = "idlg", *, budget: Budget | None = None, seed: int = 0
    ) -> None:
        self.method: Method = method
        self.budget = budget or Budget()
        self.seed = seed

    @property
    def threat_model(self) -> ThreatModel:
        """Return the attacker's threat model."""
        return ThreatModel(access="gradient of one sample and the weights it was computed with")

    def invert(
        self, gradient: ClassifierGradient, observed: Sequence[Tensor], shape: Sequence[int]
    ) -> Inversion:
        """Recover the input and label of an observed gradient.

        Args:
            gradient: The victim's gradient as a function of input and class probabilities.
            observed: The shared gradient, with weight and bias of the head last.
            shape: Shape of one input, such as ``(1, 28, 28)``.
        """
        head = HeadGradient(observed[-2], observed[-1])
        known = next(iter(recover_labels(head))) if self.method == "idlg" else None
        generator = Generator().manual_seed(self.seed)

        def draw() -> list[Tensor]:
            image = torch.rand(1, *shape, generator=generator)
            scores = torch.randn(1, head.num_classes, generator=generator)
            return [image.to(observed[0])] + ([scores.to(observed[0])] if known is None else [])

        def shared(unknowns: Sequence[Tensor]) -> Sequence[Tensor]:
            return gradient(unknowns[0], _probabilities(unknowns, known, head.num_classes))

        match = match_gradients(shared, observed, draw, self.budget)
        label = int(match.unknowns[1].argmax()) if known is None else known
        return Inversion(match.unknowns[0], label, gradient_norm(observed), match)


def _probabilities(unknowns: Sequence[Tensor], known: int | None, classes: int) -> Tensor:
    """Return the class probabilities ``[1, C]``: those of the known label, or the optimised ones."""
    if known is None:
        return unknowns[1].softmax(dim=-1)
    label = torch.tensor([known], device=unknowns[0].device)
    return one_hot(label, classes).to(unknowns[0])
