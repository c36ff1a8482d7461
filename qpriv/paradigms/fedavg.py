"""A round of federated averaging, as the server sees it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from qpriv.split import Direction, Kind, Transcript

from .centralized import StepReport
from .weights import overwrite

_WHOLE_MODEL = 0
"""Cut at which adapters are recorded: nothing is cut, all of it crosses."""


class FedAvg(Optimizer):
    """The server's side of a round: its learning rate is what clients train with, its step takes
    over their mean.
    """  # noqa: D205

    def __init__(self, parameters: Sequence[nn.Parameter], learning_rate: float) -> None:
        super().__init__(parameters, {"lr": learning_rate})

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None, *, values: Sequence[Tensor]
    ) -> float | None:
        """Overwrite the weights.

        Args:
            closure: Called before, as by any optimiser.
            values: The mean of the round, in the order of the weights.
        """
        loss = None if closure is None else closure()
        overwrite(self.param_groups[0]["params"], values)
        return loss


@dataclass(frozen=True)
class RoundOutcome:
    """What a round came to.

    Args:
        mean: The new adapter.
        reports: Local training by client; of this process's clients only.
        weights: Samples that each client of the round trained on.
        error: Distance of the new adapter's updates from the mean of the clients' updates, as a
            share of it.
        transcript: What the server saw: adapters, and the number of samples behind each.
    """

    mean: dict[str, Tensor]
    reports: dict[int, StepReport]
    weights: dict[int, int]
    error: float
    transcript: Transcript


def coming_rates(scheduler: LRScheduler, count: int) -> list[float]:
    """Return the learning rates of the coming steps, which the schedule has not taken yet."""
    schedule = cast(LambdaLR, scheduler)
    rate, share = schedule.base_lrs[0], schedule.lr_lambdas[0]
    return [float(rate) * share(schedule.last_epoch + number) for number in range(count)]


def round_transcript(
    start: dict[str, Tensor],
    adapters: Sequence[dict[str, Tensor]],
    counts: Mapping[int, int],
    store: bool,
) -> Transcript:
    """Return what the server of a round has sent and received.

    Args:
        start: The adapter that it sent to every client of the round.
        adapters: What each client made of it.
        counts: Samples that each client trained on, by its number.
        store: Keep the adapters and not only their sizes.
    """
    transcript = Transcript(store=store)
    for client, adapter in zip(counts, adapters, strict=True):
        transcript.client = client
        for direction, state in ((Direction.DOWN, start), (Direction.UP, adapter)):
            transcript.add(
                _WHOLE_MODEL,
                Kind.ADAPTER,
                direction,
                list(state.values()),
                names=list(state),
            )
        samples = torch.tensor([counts[client]])
        transcript.add(_WHOLE_MODEL, Kind.SCALAR, Direction.UP, [samples])
    return transcript
