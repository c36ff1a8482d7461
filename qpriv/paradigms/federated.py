"""Federated learning: every client has the whole model and its own data; adapters are averaged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from qpriv.boundary import Direction, Kind, Transcript
from qpriv.errors import ConfigError
from qpriv.models.batch import VQABatch
from qpriv.models.vision_language import VisionLanguageModel

from .averaging import AverageName, average_factors, average_products, product_error
from .centralized import StepReport, accumulate_gradients
from .clipping import scale_gradients, square_norm
from .paradigm import Paradigm, Run, merge_reports
from .partition import PartitionName
from .recipe import LoraRecipe
from .seeding import preserved_random, seed_step

LocalOptimizer = Literal["adamw", "sgd"]

_WHOLE_MODEL = 0
"""Cut at which adapters are recorded: nothing is cut, all of it crosses."""


class FedAvg(Optimizer):
    """The server's side of a round: its learning rate is what clients train with, its step takes
    over their mean.
    """  # noqa: D205

    def __init__(self, parameters: Sequence[nn.Parameter], learning_rate: float) -> None:
        super().__init__(parameters, {"lr": learning_rate})
        self.mean: Sequence[Tensor] = ()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Overwrite the weights by the mean of the round."""
        loss = None if closure is None else closure()
        for weight, mean in zip(self.param_groups[0]["params"], self.mean, strict=True):
            weight.copy_(mean)
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


class Federated(Paradigm):
    """Clients train the whole adapter on their own data, and a server averages the adapters.

    A round takes ``local_steps`` batches: every client of the round trains on its own rows of
    each, from the server's adapter and with a fresh optimiser (McMahan et al. 2017,
    arXiv:1602.05629). Adapters are weighted by the samples they were trained on. Between rounds
    the model holds the server's adapter. A round also ends with its epoch.

    On several processes the clients are spread over them, and no gradient is shared: the weights
    are those of one process.

    Args:
        num_clients: Number of clients.
        local_steps: Optimiser steps a client takes in a round.
        participation: Share of the clients that take part in a round, drawn anew for each.
        average: ``factors`` averages A and B separately, ``products`` the updates ``B A``, which
            it factors again at the same rank; the error of either is logged.
        local_optimizer: What clients train with.
        partition: How images are dealt to the clients.
        concentration: Of ``dirichlet``: the smaller, the less alike the shards.

    Raises:
        ConfigError: If a number is out of its range.
    """

    label = "federated"
    clients_on_ranks = True

    def __init__(
        self,
        num_clients: int = 4,
        local_steps: int = 4,
        participation: float = 1.0,
        average: AverageName = "factors",
        local_optimizer: LocalOptimizer = "adamw",
        partition: PartitionName = "iid",
        concentration: float = 0.5,
    ) -> None:
        super().__init__(num_clients, partition, concentration)
        if local_steps < 1:
            raise ConfigError(f"local_steps is {local_steps}", remedy="choose 1 or more")
        if not 0 < participation <= 1:
            raise ConfigError(f"participation is {participation}", remedy="choose above 0 to 1")
        self.local_steps, self.participation = local_steps, participation
        self.average: AverageName = average
        self.local_optimizer: LocalOptimizer = local_optimizer
        self.round = 0
        self._pending: list[VQABatch] = []

    def optimizer(self, model: VisionLanguageModel, recipe: LoraRecipe) -> Optimizer:
        """Return the server's optimiser."""
        self._server = FedAvg(_trained(model), recipe.learning_rate)
        return self._server

    def step(
        self,
        run: Run,
        batch: VQABatch,
        optimizer: Optimizer,
        scheduler: LRScheduler,
        *,
        last: bool = False,
    ) -> StepReport | None:
        """Keep the batch until the round has all of its own, then train the round."""
        self._pending.append(batch)
        if len(self._pending) < self.local_steps and not last:
            return None
        batches, self._pending = self._pending, []
        outcome = self.train_round(run, batches, _rates(scheduler, len(batches)))
        self._server.mean = list(outcome.mean.values())
        optimizer.step()
        for _ in batches:
            scheduler.step()
        self.round += 1
        self.traffic.add(outcome.transcript, sum(outcome.weights.values()))
        self.figures = {
            "averaging_error": outcome.error,
            **{f"client{c}/loss": report.loss for c, report in outcome.reports.items()},
        }
        return merge_reports(list(outcome.reports.values())) if outcome.reports else None

    def train_round(
        self, run: Run, batches: Sequence[VQABatch], rates: Sequence[float], *, store: bool = False
    ) -> RoundOutcome:
        """Train the clients of one round and average them; the model's weights stay as they were.

        Args:
            run: What is trained.
            batches: What all clients draw, a batch a local step.
            rates: The learning rate of each local step.
            store: Keep the adapters in the transcript and not only their sizes.
        """
        parameters = _trained(run.model)
        start = named_weights(run.model)
        clients, rank, world = self.clients_of_round(run.seed), _rank(), _world()
        adapters: list[dict[str, Tensor]] = []
        counts, reports = {}, {}
        for place, client in enumerate(clients):
            count = torch.zeros(1, dtype=torch.int64, device=run.model.device)
            if place % world == rank:
                own = [dict(self.parts(batch)).get(client) for batch in batches]
                report = self.train_client(run, client, own, rates)
                count.fill_(0 if report is None else report.samples)
                if report is not None:
                    reports[client] = report
            adapters.append(_from_rank(named_weights(run.model), place % world))
            counts[client] = int(_broadcast(count, place % world))
            _restore(parameters, list(start.values()))
        mean, error = self.averaged(start, adapters, list(counts.values()))
        transcript = _transcript(start, adapters, counts, store)
        return RoundOutcome(mean, reports, counts, error, transcript)

    def clients_of_round(self, seed: int) -> list[int]:
        """Return the clients that take part in the coming round, in order."""
        count = max(1, round(self.participation * self.num_clients))
        drawn = np.random.default_rng((seed, self.round)).permutation(self.num_clients)
        return sorted(drawn[:count].tolist())

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beyond weights and optimiser."""
        return {**super().state(), "round": self.round, "pending": len(self._pending)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` returned; the batches of an open round are read again."""
        super().load_state(state)
        self.round, self.missing = state["round"], state["pending"]

    def resume(self, batches: Sequence[VQABatch]) -> None:
        """Take the batches of the open round that were drawn before the run was stopped."""
        self._pending, self.missing = list(batches), 0

    def train_client(
        self, run: Run, client: int, batches: Sequence[VQABatch | None], rates: Sequence[float]
    ) -> StepReport | None:
        """Train the model's adapter as one client does in a round.

        Args:
            run: What is trained.
            client: The client.
            batches: Its own rows of every local step's batch; None where it has none.
            rates: The learning rate of each local step.

        Returns:
            What it saw; None if none of the rows was its own.
        """
        parameters = _trained(run.model)
        optimizer: Optimizer = run.recipe.optimizer(parameters)
        if self.local_optimizer == "sgd":
            optimizer = SGD(parameters, lr=run.recipe.learning_rate)
        reports = []
        for number, (own, rate) in enumerate(zip(batches, rates, strict=True)):
            if own is None:
                continue
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            with preserved_random():
                # a client's dropout must not depend on the process that it runs on
                seed_step(run.seed, self.round, number, client)
                reports.append(
                    accumulate_gradients(
                        run.model, own, run.policy, run.encode, run.recipe.micro_batch_size
                    )
                )
            scale_gradients(parameters, square_norm(parameters), run.recipe.clip)
            optimizer.step()
        optimizer.zero_grad()
        return merge_reports(reports) if reports else None

    def averaged(
        self, start: dict[str, Tensor], adapters: list[dict[str, Tensor]], counts: list[int]
    ) -> tuple[dict[str, Tensor], float]:
        """Return the adapter of the next round, and its error as in `RoundOutcome`.

        Args:
            start: The adapter of this round, kept where nobody has trained.
            adapters: What the clients of the round made of it, in their order.
            counts: Samples that each has trained on.
        """
        taking = [(own, float(n)) for own, n in zip(adapters, counts, strict=True) if n]
        if not taking:
            return start, 0.0
        states, weights = [own for own, _ in taking], [n for _, n in taking]
        average = average_products if self.average == "products" else average_factors
        # one adapter is its own mean; factoring it again would only rotate it
        mean = dict(states[0]) if len(states) == 1 else average(states, weights)
        return mean, product_error(mean, states, weights)


def named_weights(model: VisionLanguageModel) -> dict[str, Tensor]:
    """Return copies of the trained weights, named without the adapter, as in a PEFT folder."""
    return {_peft_name(n): v.detach().clone() for n, v in _named_parameters(model)}


@torch.no_grad()
def load_weights(model: VisionLanguageModel, weights: Mapping[str, Tensor]) -> None:
    """Overwrite the trained weights by what `named_weights` returned."""
    for name, parameter in _named_parameters(model):
        parameter.copy_(weights[_peft_name(name)])


def _named_parameters(model: VisionLanguageModel) -> list[tuple[str, nn.Parameter]]:
    return [(name, value) for name, value in model.named_parameters() if value.requires_grad]


def _peft_name(name: str) -> str:
    return name.removeprefix("llava.").replace(".default.weight", ".weight")


def _trained(model: VisionLanguageModel) -> list[nn.Parameter]:
    return [value for value in model.parameters() if value.requires_grad]


@torch.no_grad()
def _restore(parameters: Sequence[nn.Parameter], values: Sequence[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)


def _rates(scheduler: LRScheduler, count: int) -> list[float]:
    """Return the learning rates of the coming steps, which the schedule has not taken yet."""
    schedule = cast(LambdaLR, scheduler)
    rate, share = schedule.base_lrs[0], schedule.lr_lambdas[0]
    return [float(rate) * share(schedule.last_epoch + number) for number in range(count)]


def _transcript(
    start: dict[str, Tensor],
    adapters: Sequence[dict[str, Tensor]],
    counts: Mapping[int, int],
    store: bool,
) -> Transcript:
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


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _world() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _broadcast(tensor: Tensor, source: int) -> Tensor:
    if _world() > 1:
        dist.broadcast(tensor, source)
    return tensor


def _from_rank(state: dict[str, Tensor], source: int) -> dict[str, Tensor]:
    """Return the weights that one process holds, on all of them, in one message."""
    if _world() == 1:
        return state
    flat = _broadcast(torch.cat([value.flatten() for value in state.values()]), source)
    pieces = torch.split(flat, [value.numel() for value in state.values()])
    return {n: p.view_as(v) for (n, v), p in zip(state.items(), pieces, strict=True)}
