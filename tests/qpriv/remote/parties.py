"""Parties of a small random model, each with a model of its own, as on machines of their own."""

import copy
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from qpriv.models.batch import VQABatch
from qpriv.models.llava.loading import DType
from qpriv.paradigms import Federated, Run, SplitLearning, UShapedSplit
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.paradigms.split import SERVER, SplitParadigm, adapter_parameters, client_name
from qpriv.paradigms.split_client import SplitClient
from qpriv.paradigms.split_server import Answers, BodyServer, Server, SplitServer
from qpriv.paradigms.weights import named_weights
from qpriv.remote import (
    LocalClient,
    LocalWork,
    RemoteClient,
    RemoteFederatedClient,
    RemoteFederatedServer,
    RemoteSplitClient,
    RemoteSplitServer,
    Snapshots,
    terms_of,
)
from qpriv.split.layers import Segment, Tail
from qpriv.transport import Connection, InprocConnection, client_peer
from tests.qpriv.paradigms.runs import RECIPE, begin
from tests.tiny_models import random_samples

SAMPLES = random_samples(6)
SEED = 5

Connect = Callable[[], Connection]


@cache
def _fresh(kind: str, clients: int, dropout: float, dtype: DType) -> Run:
    return begin(paradigm_of(kind, clients), recipe_of(dropout), SAMPLES, dtype)


def paradigm_of(kind: str, clients: int = 1):
    if kind == "federated":
        return Federated(num_clients=clients, local_steps=2)
    settings = {"num_clients": clients}
    if kind == "split":
        paradigm = SplitLearning(3, client_adapters="private", **settings)
    else:
        paradigm = UShapedSplit((2, 6), **settings)
    paradigm.place(8)
    return paradigm


def recipe_of(dropout: float) -> LoraRecipe:
    return LoraRecipe(**{**vars(RECIPE), "dropout": dropout})


def fresh(kind: str, clients: int = 1, dropout: float = 0.0, dtype: DType = "float32") -> Run:
    """Return a run as a new process would make it."""
    run = _fresh(kind, clients, dropout, dtype)
    model = copy.deepcopy(run.model)
    return Run(model, run.policy, run.encode, run.recipe, SEED)


def shared(kind: str, clients: int):
    paradigm = paradigm_of(kind, clients)
    paradigm.share_out(SAMPLES, seed=5)
    return paradigm


def batch_of(run: Run, number: int) -> VQABatch:
    """Return what all clients draw in a step; steps differ."""
    turned = SAMPLES[number % 3 :] + SAMPLES[: number % 3]
    return run.model.preprocessor(turned[:5])


def split_server(run: Run, paradigm: SplitParadigm, rounds: int) -> Server:
    paradigm.become(run.model, None)
    if len(paradigm.cuts) == 1:
        return SplitServer(Tail(run.model, paradigm.cuts[0]), run.recipe, rounds)
    return BodyServer(Segment(run.model, *paradigm.cuts), run.recipe, rounds)


def remote_split_server(
    kind: str,
    folder: Path,
    rounds: int,
    clients: int = 1,
    dropout: float = 0.0,
    dtype: DType = "float32",
) -> RemoteSplitServer:
    run, paradigm = fresh(kind, clients, dropout, dtype), shared(kind, clients)
    server = split_server(run, paradigm, rounds)
    terms = terms_of("digest", paradigm, run.recipe, SEED)
    return RemoteSplitServer(server, terms, clients, rounds, Snapshots(folder), SEED)


def remote_split_client(
    kind: str,
    folder: Path,
    connect: Connect,
    number: int = 0,
    clients: int = 1,
    dropout: float = 0.0,
    dtype: DType = "float32",
    **settings,
) -> RemoteSplitClient:
    run, paradigm = fresh(kind, clients, dropout, dtype), shared(kind, clients)
    terms = {**terms_of("digest", paradigm, run.recipe, SEED), **settings.pop("terms", {})}

    def build(server: Answers, steps: int) -> SplitClient:
        paradigm.become(run.model, number)
        return SplitClient(
            run.model, paradigm.cuts, server, run.policy, run.encode, run.recipe, steps
        )

    def rows(step: int) -> VQABatch | None:
        return dict(paradigm.parts(batch_of(run, step))).get(number)

    snapshots = Snapshots(folder)
    return RemoteSplitClient(connect, terms, number, build, rows, snapshots, SEED, 10.0, **settings)


def remote_federated_server(
    folder: Path, rounds: int, steps: int, clients: int, **settings
) -> RemoteFederatedServer:
    run = fresh("federated", clients)
    paradigm = Federated(num_clients=clients, local_steps=2, **settings)
    terms = terms_of("digest", paradigm, run.recipe, SEED)
    start = named_weights(run.model)
    return RemoteFederatedServer(start, paradigm, terms, rounds, steps, Snapshots(folder), SEED)


def local_client(number: int, clients: int, **settings) -> tuple[LocalClient, dict[str, str]]:
    """Return a client of a federated run, and what it agrees on with the server."""
    run = fresh("federated", clients)
    paradigm = Federated(num_clients=clients, local_steps=2, **settings)
    paradigm.share_out(SAMPLES, seed=5)

    def work(round_number: int) -> LocalWork:
        first = 2 * round_number
        batches = [batch_of(run, first + step) for step in range(2)]
        return LocalWork(first, [dict(paradigm.parts(own)).get(number) for own in batches])

    terms = terms_of("digest", paradigm, run.recipe, SEED)
    return LocalClient(number, run, paradigm, work), terms


def remote_federated_client(
    connect: Connect, number: int, clients: int, **settings
) -> RemoteFederatedClient:
    own, terms = local_client(number, clients, **settings)
    return RemoteFederatedClient(connect, terms, number, own.run, own.paradigm, own.work, 10.0)


def line(remote_server, number: int = 0) -> Connect:
    return lambda: InprocConnection(remote_server, client_peer(number))


def together(remote_clients: list[RemoteClient]) -> None:
    """Run clients at the same time, and raise what one of them raises."""
    mistakes: list[BaseException] = []

    def run(remote_client: RemoteClient) -> None:
        try:
            remote_client.run()
        except BaseException as error:
            mistakes.append(error)

    threads = [
        threading.Thread(target=run, args=(remote_client,)) for remote_client in remote_clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if mistakes:
        raise mistakes[0]


def hooks(
    kind: str, clients: int, rounds: int, dtype: DType = "float32"
) -> dict[str, list[Tensor]]:
    """Return every party's weights after the same training inside one whole model."""
    run, paradigm = fresh(kind, clients, dtype=dtype), shared(kind, clients)
    optimizer = paradigm.optimizer(run.model, run.recipe)
    scheduler = run.recipe.scheduler(optimizer, rounds)
    for number in range(rounds):
        paradigm.step(run, batch_of(run, number), optimizer, scheduler)
    names = [SERVER, *(client_name(client) for client in range(clients))]
    return {name: [p.detach() for p in adapter_parameters(run.model, name)] for name in names}


def weights_of(folder: Path) -> list[Tensor]:
    """Return a split party's weights after its last round, as it wrote them down."""
    snapshots = Snapshots(folder)
    state = snapshots.read(snapshots.numbers()[-1])
    found: list[Tensor] = state.get("party", state)["weights"]
    return found


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(
        torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )
