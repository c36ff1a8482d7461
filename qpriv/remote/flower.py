"""Federated learning over Flower: its SuperLink carries the adapters, the mean is ours.

Needs ``qpriv[flower]``. Flower's message is one round of one client, so it has no place for the
conversations of a split. `AdapterMean` is the server's strategy, `train` a client's answer;
``cli.flower`` makes both of them apps.
"""

import os
from collections.abc import Iterable, Mapping

from torch import Tensor

from qpriv.errors import ConfigError
from qpriv.paradigms.federated import Federated
from qpriv.transport import TransportError

from .federated_server import checked_adapter
from .handshake import check_terms
from .local_client import LocalClient

# Flower reports its use to its makers unless it is told not to before it is imported
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg
except ImportError as error:
    raise ConfigError("flwr is not installed", remedy="pip install 'qpriv[flower]'") from error

_ADAPTER, _RUN, _METRICS = "arrays", "config", "metrics"
_ROUND = "server-round"
"""Where `FedAvg` writes the round, counted from 1."""
_STEPS, _TERM = "steps", "term/"


class AdapterMean(FedAvg):  # type: ignore[misc]
    """Flower's federated averaging, with the mean that every other federated run here takes.

    Clients are averaged in the order of their numbers and in double precision, by factors or by
    products; so with all of them in every round the weights are those of ``qpriv fit``, bit for
    bit. With a smaller participation Flower draws the clients, among those that are connected.

    Args:
        paradigm: Number of clients, participation, and how adapters are averaged.
    """

    def __init__(self, paradigm: Federated) -> None:
        super().__init__(
            fraction_train=paradigm.participation,
            fraction_evaluate=0.0,
            min_train_nodes=1,
            min_available_nodes=paradigm.num_clients,
            arrayrecord_key=_ADAPTER,
            configrecord_key=_RUN,
        )
        self.paradigm = paradigm
        self._adapter: dict[str, Tensor] = {}
        self._asked = 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the adapter on its way to the clients of a round."""
        self._adapter = arrays.to_torch_state_dict()
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self._asked = len(messages)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Return the mean of what clients sent back, and its error.

        Raises:
            TransportError: If a client has failed, is missing, or sent what is no such adapter.
        """
        sent = sorted((self._read(reply) for reply in replies), key=lambda own: own[0])
        numbers = [number for number, _, _ in sent]
        if len(sent) != self._asked or len(set(numbers)) != len(numbers):
            raise TransportError(
                f"round {server_round} has answers of the clients {numbers}, "
                f"where {self._asked} were asked",
                remedy="give every node a number of its own, and start the run again",
            )
        adapters, counts = [own for _, own, _ in sent], [count for _, _, count in sent]
        mean, error = self.paradigm.averaged(self._adapter, adapters, counts)
        metrics = MetricRecord({"num-examples": sum(counts), "averaging-error": error})
        return ArrayRecord(mean), metrics

    def _read(self, reply: Message) -> tuple[int, dict[str, Tensor], int]:
        """Return a client's number, its adapter, and the samples behind it."""
        if reply.has_error():
            raise TransportError(
                f"a client failed: {reply.error.reason}", remedy="the log of its node says why"
            )
        given = reply.content.array_records[_ADAPTER].to_torch_state_dict()
        metrics = reply.content.metric_records[_METRICS]
        adapter = checked_adapter(given, self._adapter)
        return int(metrics["client"]), adapter, int(metrics["num-examples"])


def run_config(steps: int, terms: Mapping[str, str]) -> ConfigRecord:
    """Return what the server tells clients beside the adapter.

    Args:
        steps: Local optimiser steps of the whole run, which the schedule spans.
        terms: What a client must agree on.
    """
    return ConfigRecord({_STEPS: steps, **{_TERM + name: word for name, word in terms.items()}})


def train(message: Message, client: LocalClient, terms: Mapping[str, str]) -> Message:
    """Return a client's answer to a message that asks it to train.

    Args:
        message: The server's adapter and `run_config`.
        client: Trains it.
        terms: What the client has in common with the server.

    Raises:
        TransportError: If the server's terms are others.
    """
    config = message.content.config_records[_RUN]
    given = {
        name.removeprefix(_TERM): str(word)
        for name, word in config.items()
        if name.startswith(_TERM)
    }
    check_terms(given, terms)
    adapter = message.content.array_records[_ADAPTER].to_torch_state_dict()
    number, steps = int(config[_ROUND]) - 1, int(config[_STEPS])
    own, report = client.train(adapter, number, steps)
    metrics = {"client": client.number, "num-examples": 0 if report is None else report.samples}
    records = {_ADAPTER: ArrayRecord(own), _METRICS: MetricRecord(metrics)}
    return Message(RecordDict(records), reply_to=message)
