"""Federated learning: every client has the whole model and its own data; adapters are averaged."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from qpriv.errors import ConfigError
from qpriv.models.batch import VQABatch
from qpriv.models.llava.vision_language import VisionLanguageModel

from . import ranks
from .averaging import AverageName, average_factors, average_products, product_error
from .base import Paradigm, Run, merge_reports
from .centralized import StepReport, accumulate_gradients
from .clipping import scale_gradients, square_norm
from .fedavg import FedAvg, RoundOutcome, coming_rates, round_transcript
from .partition import PartitionName
from .recipe import LoraRecipe
from .scaling import CAUTIOUS, scaling_for
from .seeding import preserved_random, seed_step
from .weights import load_weights, named_weights, overwrite, trained

__all__ = ("FedAvg", "Federated", "RoundOutcome", "load_weights", "named_weights")

LocalOptimizer = Literal["adamw", "sgd"]


class Federated(Paradigm):
    """Clients train the whole adapter on their own data, and a server averages the adapters.

    A round takes ``local_steps`` batches. Every client of the round starts from the server's
    adapter with a fresh optimiser and trains on its own rows of each batch (McMahan et al. 2017,
    arXiv:1602.05629). Adapters are weighted by their number of training samples. Between rounds
    the model holds the server's adapter. The end of an epoch also ends the round.

    Several processes share out the clients and exchange no gradients. The resulting weights equal
    those of a single process.

    Args:
        num_clients: Number of clients.
        local_steps: Optimiser steps per client and round.
        participation: Share of clients that take part in a round, in (0, 1], drawn for each round.
        average: ``factors`` averages A and B separately; ``products`` averages the updates ``B A``
            and factors the mean at the same rank. The error of the chosen mean is logged.
        local_optimizer: The clients' optimiser.
        partition: How images are dealt to the clients.
        concentration: Concentration of ``dirichlet``; smaller values make shards less alike.

    Raises:
        ConfigError: If a number is out of range.
    """

    label = "federated"
    clients_on_ranks = True
    exchanges = "adapters"

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
        self._untrained = 0

    def supposed_cuts(self, num_layers: int) -> tuple[int, ...]:
        """Return no cuts, because adapters cross instead of activations."""
        return ()

    def round_numbers(self, adapter_parameters: int) -> int:
        """Return the number of weights that a client sends per round: its whole adapter."""
        return adapter_parameters

    def sees(self, adapter_parameters: int) -> tuple[str, ...]:
        """Return sentences that say who sees what."""
        return (
            f"{self.num_clients} clients keep images, questions and answers.",
            f"The server sees each client's adapter after its local steps, {adapter_parameters:,} "
            "numbers a round, and how many samples it trained on.",
            "It can invert updates (DLG, iDLG) and tell members from non-members. Pruning changes "
            "what the updates are about, not how many numbers cross.",
        )

    def terms(self) -> dict[str, object]:
        """Return the settings that parties must share: local training and participation."""
        return {
            "local_steps": self.local_steps,
            "local_optimizer": self.local_optimizer,
            "participation": self.participation,
        }

    def check_divisible(self) -> None:
        """Accept separate processes in every configuration."""

    def schedule_steps(self, rounds: int, asked: int | None) -> int:
        """Return the local steps that the schedule spans: those of all rounds, or ``asked``."""
        return asked or rounds * self.local_steps

    def optimizer(self, model: VisionLanguageModel, recipe: LoraRecipe) -> Optimizer:
        """Return the server's optimiser."""
        return FedAvg(trained(model), recipe.learning_rate)

    def step(
        self,
        run: Run,
        batch: VQABatch,
        optimizer: Optimizer,
        scheduler: LRScheduler,
        *,
        last: bool = False,
    ) -> StepReport | None:
        """Keep the batch until the round has all its batches, then train the round."""
        self._pending.append(batch)
        if len(self._pending) < self.local_steps and not last:
            return None
        batches, self._pending = self._pending, []
        outcome = self.train_round(run, batches, coming_rates(scheduler, len(batches)))
        run.scaling.step(optimizer, values=list(outcome.mean.values()))
        for _ in batches:
            scheduler.step()
        self.round += 1
        self.traffic.add(outcome.transcript, sum(outcome.weights.values()))
        self.metrics = {
            "averaging_error": outcome.error,
            **{f"client{c}/loss": report.loss for c, report in outcome.reports.items()},
        }
        return merge_reports(list(outcome.reports.values())) if outcome.reports else None

    def train_round(
        self, run: Run, batches: Sequence[VQABatch], rates: Sequence[float], *, store: bool = False
    ) -> RoundOutcome:
        """Train the clients of one round and average their adapters; restore the model's weights.

        Args:
            run: Model, policy and recipe of the run.
            batches: Samples of all clients, one batch per local step.
            rates: Learning rate of each local step.
            store: Keep the adapters in the transcript, not only their sizes.
        """
        parameters = trained(run.model)
        start = named_weights(run.model)
        clients, rank, world = self.clients_of_round(run.seed), ranks.rank(), ranks.world()
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
            adapters.append(ranks.broadcast_state(named_weights(run.model), place % world))
            counts[client] = int(ranks.broadcast(count, place % world))
            overwrite(parameters, list(start.values()))
        mean, error = self.averaged(start, adapters, list(counts.values()))
        transcript = round_transcript(start, adapters, counts, store)
        return RoundOutcome(mean, reports, counts, error, transcript)

    def clients_of_round(self, seed: int, number: int | None = None) -> list[int]:
        """Return the clients that take part in a round, ascending.

        Args:
            seed: Seed of the run.
            number: The round, from 0; None is the next one.
        """
        count = max(1, round(self.participation * self.num_clients))
        drawn = np.random.default_rng((seed, self._numbered(number))).permutation(self.num_clients)
        return sorted(drawn[:count].tolist())

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint must hold besides weights and optimiser.

        Pending batches include those that a resumed run has not read again yet, because the run
        may be saved before it reads them.
        """
        pending = len(self._pending) + self._untrained
        return {**super().state(), "round": self.round, "pending": pending}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned; the batches of an open round are read again later."""
        super().load_state(state)
        self.round, self._untrained = state["round"], state["pending"]

    def untrained_batches(self) -> int:
        """Return the number of batches of the open round that a resumed run must read again."""
        return self._untrained

    def resume(self, batches: Sequence[VQABatch]) -> None:
        """Take the batches of the open round that were drawn before the run stopped."""
        self._pending, self._untrained = list(batches), 0

    def train_client(
        self,
        run: Run,
        client: int,
        batches: Sequence[VQABatch | None],
        rates: Sequence[float],
        number: int | None = None,
    ) -> StepReport | None:
        """Train the model's adapter as one client does in a round.

        Args:
            run: Model, policy and recipe of the run.
            client: The client.
            batches: The client's rows of every local step's batch; None if it has no rows.
            rates: Learning rate of each local step.
            number: The round, from 0; None is the next one.

        Returns:
            Loss and counts of its training; None if the client had no rows.
        """
        parameters = trained(run.model)
        optimizer: Optimizer = run.recipe.optimizer(parameters)
        if self.local_optimizer == "sgd":
            optimizer = SGD(parameters, lr=run.recipe.learning_rate)
        scaling = scaling_for(run.model.device, CAUTIOUS)
        reports = []
        for place, (own, rate) in enumerate(zip(batches, rates, strict=True)):
            if own is None:
                continue
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            with preserved_random():
                # a client's dropout must not depend on the process that runs it
                seed_step(run.seed, self._numbered(number), place, client)
                reports.append(
                    accumulate_gradients(
                        run.model,
                        own,
                        run.policy,
                        run.encode,
                        run.recipe.micro_batch_size,
                        scaling.backward,
                        cut=run.first_cut,
                    )
                )
            total = square_norm(parameters, scaling.scale)
            scale_gradients(parameters, total, run.recipe.clip)
            scaling.step(optimizer)
        optimizer.zero_grad()
        return merge_reports(reports) if reports else None

    def _numbered(self, number: int | None) -> int:
        return self.round if number is None else number

    def averaged(
        self, start: dict[str, Tensor], adapters: list[dict[str, Tensor]], counts: list[int]
    ) -> tuple[dict[str, Tensor], float]:
        """Return the adapter of the next round, and its error as in `RoundOutcome`.

        Args:
            start: The adapter of this round, returned if no client has trained.
            adapters: The clients' adapters, in the clients' order.
            counts: Number of samples that each client trained on.
        """
        taking = [(own, float(n)) for own, n in zip(adapters, counts, strict=True) if n]
        if not taking:
            return start, 0.0
        states, weights = [own for own, _ in taking], [n for _, n in taking]
        average = average_products if self.average == "products" else average_factors
        # one adapter is its own mean; factoring it again would only rotate it
        mean = dict(states[0]) if len(states) == 1 else average(states, weights)
        return mean, product_error(mean, states, weights)
