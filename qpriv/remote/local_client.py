"""`LocalClient`: a federated client's local training, over any transport."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from qpriv.models.batch import VQABatch
from qpriv.paradigms.base import Run
from qpriv.paradigms.centralized import StepReport
from qpriv.paradigms.federated import Federated
from qpriv.paradigms.recipe import rate
from qpriv.paradigms.weights import load_weights, named_weights


@dataclass(frozen=True)
class LocalWork:
    """A client's data of one round.

    Args:
        first: Number of the round's first local step in the run.
        batches: The client's rows of every step's batch; None if it has no rows.
    """

    first: int
    batches: Sequence[VQABatch | None]


@dataclass(frozen=True)
class LocalClient:
    """Trains a given adapter on the client's own data; keeps no state between rounds.

    Args:
        number: Its own number.
        run: Model, policy, encoders and recipe.
        paradigm: How it trains.
        work: Its data by round; the same each time it is asked.
    """

    number: int
    run: Run
    paradigm: Federated
    work: Callable[[int], LocalWork]

    def train(
        self, adapter: Mapping[str, Tensor], number: int, steps: int
    ) -> tuple[dict[str, Tensor], StepReport | None]:
        """Return the trained adapter and its report; the report is None if it had no rows.

        Args:
            adapter: The server's adapter, as `named_weights` returns it.
            number: The round, from 0.
            steps: Local optimiser steps of the whole run, which the schedule spans.
        """
        load_weights(self.run.model, adapter)
        recipe, work = self.run.recipe, self.work(number)
        rates = [
            recipe.learning_rate * rate(work.first + place, steps, recipe.schedule, recipe.warmup)
            for place in range(len(work.batches))
        ]
        report = self.paradigm.train_client(self.run, self.number, work.batches, rates, number)
        return named_weights(self.run.model), report
