"""The server's side of a round of federated averaging."""

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
"""Cut at which adapters are recorded, because federated learning has no cut."""


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
        """Overwrite the weights by the mean of the round.

        Args:
            closure: Called first, as in any optimiser.
            values: The mean, in the order of the weights.
        """
        loss = None if closure is None else closure()
        overwrite(self.param_groups[0]["params"], values)
        return loss


@dataclass(frozen=True)
class RoundOutcome:
    """The outcome of a round.

    Args:
        mean: The new adapter.
        reports: Reports of local training by client, for this process's clients only.
        weights: Number of samples that each client of the round trained on.
        error: Relative error of the new adapter's updates; see `product_error`.
        transcript: What the server saw: adapters, and the number of samples behind each.
    """

    mean: dict[str, Tensor]
    reports: dict[int, StepReport]
    weights: dict[int, int]
    error: float
    transcript: Transcript


def coming_rates(scheduler: LRScheduler, count: int) -> list[float]:
    """Return the learning rates of the next ``count`` steps of the schedule."""
    schedule = cast(LambdaLR, scheduler)
    rate, share = schedule.base_lrs[0], schedule.lr_lambdas[0]
    return [float(rate) * share(schedule.last_epoch + number) for number in range(count)]


def round_transcript(
    start: dict[str, Tensor],
    adapters: Sequence[dict[str, Tensor]],
    counts: Mapping[int, int],
    store: bool,
) -> Transcript:
    """Return the transcript of all that the server sent and received in a round.

    Args:
        start: The adapter that the server sent to every client of the round.
        adapters: The adapters that the clients sent back.
        counts: Number of samples that each client trained on, by client.
        store: Keep the adapters, not only their sizes.
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
