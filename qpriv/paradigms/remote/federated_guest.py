"""`FederatedGuest`: a client of federated learning, on its own machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qpriv.models.batch import VQABatch
from qpriv.paradigms.federated import Federated, load_weights, named_weights
from qpriv.paradigms.paradigm import Run
from qpriv.paradigms.recipe import rate
from qpriv.transport import Link, Packet, scalar

from .guest import Guest, RoundEnd

_ADAPTER = "adapter/"


@dataclass(frozen=True)
class LocalWork:
    """What a client trains on in a round.

    Args:
        first: Number of its first local step in the run.
        batches: The client's own rows of every step's batch; None where it has none.
    """

    first: int
    batches: Sequence[VQABatch | None]


class FederatedGuest(Guest):
    """Trains the adapter it is given on its own data. Between rounds it keeps nothing.

    Args:
        connect: Opens a line to the server.
        terms: What it agrees on with the server.
        number: Its own number.
        run: Model, policy, encoders and recipe.
        paradigm: How it trains.
        work: Its data by round; the same each time it is asked.
        patience: Seconds it waits for a server that is gone.
        on_round: Called after every round it has trained in.
    """

    def __init__(
        self,
        connect: Callable[[], Link],
        terms: Mapping[str, str],
        number: int,
        run: Run,
        paradigm: Federated,
        work: Callable[[int], LocalWork],
        patience: float = 600.0,
        on_round: RoundEnd = lambda number, loss: None,
    ) -> None:
        super().__init__(connect, terms, patience, on_round)
        self.number, self._run, self.paradigm, self.work = number, run, paradigm, work

    def attend(self, link: Link, done: int, rounds: int, steps: int) -> None:
        """Train when asked to, until the server has the last adapter; the model then holds it."""
        while True:
            answer = self.wait(link, done)
            load_weights(
                self._run.model,
                {n.removeprefix(_ADAPTER): value for n, value in answer.tensors.items()},
            )
            if answer.verb == "done":
                return
            loss, samples = self._train(answer.round, steps)
            named = named_weights(self._run.model)
            tensors = {f"{_ADAPTER}{name}": value for name, value in named.items()}
            tensors["scalar/samples"] = scalar(samples)
            link(Packet("trained", tensors, round=answer.round))
            done = answer.round + 1
            self.on_round(answer.round, loss)

    def _train(self, number: int, steps: int) -> tuple[float | None, int]:
        recipe, work = self._run.recipe, self.work(number)
        self.paradigm.round = number
        rates = [
            recipe.learning_rate * rate(work.first + place, steps, recipe.schedule, recipe.warmup)
            for place in range(len(work.batches))
        ]
        report = self.paradigm.train_client(self._run, self.number, work.batches, rates)
        return (None, 0) if report is None else (report.loss, report.samples)
