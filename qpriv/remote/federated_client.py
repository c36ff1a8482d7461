"""`RemoteFederatedClient`: a client of federated learning, on its own machine."""

from collections.abc import Callable, Mapping

from qpriv.paradigms.base import Run
from qpriv.paradigms.federated import Federated
from qpriv.paradigms.weights import load_weights
from qpriv.transport import Connection, Message, scalar

from .client import RemoteClient, RoundEnd
from .local_client import LocalClient, LocalWork

_ADAPTER = "adapter/"


class RemoteFederatedClient(RemoteClient):
    """Gives the server's adapter to a `LocalClient`, and sends the trained adapter back.

    Args:
        connect: Opens a connection to the server.
        terms: The settings that must agree with the server's.
        number: The client's number.
        run: Model, policy, encoders and recipe.
        paradigm: The federated paradigm, with the settings of local training.
        work: Returns the client's data of a round, the same at every call.
        patience: Seconds that the client waits for a lost server.
        on_round: Called after every round in which the client trained.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        terms: Mapping[str, str],
        number: int,
        run: Run,
        paradigm: Federated,
        work: Callable[[int], LocalWork],
        patience: float = 600.0,
        on_round: RoundEnd = lambda number, loss: None,
    ) -> None:
        super().__init__(connect, terms, patience, on_round)
        self.client = LocalClient(number, run, paradigm, work)

    def attend(self, connection: Connection, done: int, rounds: int, steps: int) -> None:
        """Train when asked to, until the server has the last adapter; the model then holds it."""
        while True:
            answer = self.wait(connection, done)
            adapter = {n.removeprefix(_ADAPTER): value for n, value in answer.tensors.items()}
            if answer.type == "done":
                load_weights(self.client.run.model, adapter)
                return
            own, report = self.client.train(adapter, answer.round, steps)
            tensors = {f"{_ADAPTER}{name}": value for name, value in own.items()}
            tensors["scalar/samples"] = scalar(0 if report is None else report.samples)
            connection(Message("trained", tensors, round=answer.round))
            done = answer.round + 1
            self.on_round(answer.round, None if report is None else report.loss)
