"""Clients that step together: one step of the server for all, and parts that a defence joins."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from qpriv.errors import ConfigError
from qpriv.paradigms import Centralized, SplitLearning, UShapedSplit
from qpriv.paradigms.split import SERVER, adapter_parameters, client_name
from qpriv.split import Defence, Kind, Part
from tests.qpriv.defences.toys import Mean, Narrow
from tests.qpriv.paradigms.runs import RECIPE, Trained, base_name, begin, same, train
from tests.tiny_models import random_samples

SAMPLES = random_samples(6)
PLAIN = replace(RECIPE, dropout=0.0, clip=1e6)
CLOSE = {"rtol": 1e-3, "atol": 1e-5}


class Toy(Defence):
    @property
    def label(self) -> str:
        return type(self).__name__


class AsTheyAre(Toy):
    def join(self, parts: Sequence[Part]) -> Sequence[Tensor]:
        return [part.rows for part in parts]


class OthersAlone(Toy):
    """A server that learns of each client through the other's first rows only."""

    def join(self, parts: Sequence[Part]) -> Sequence[Tensor]:
        one, other = parts
        count = min(len(one.rows), len(other.rows))
        return [
            torch.cat((other.rows[:count], one.rows[count:].detach())),
            other.rows.detach(),
        ]


def paradigm(kind: str, defence: Defence | None = None, clients: int = 2, **settings: Any) -> Any:
    given = {"num_clients": clients, "schedule": "together", **settings}
    own: Any = UShapedSplit(**given)
    if kind == "split":
        own = SplitLearning(**{"client_adapters": "private", **given})
    own.place(8)
    if defence is not None:
        own.defend(defence)
    return own


def gradients(trained: Trained, name: str) -> dict[str, Tensor]:
    of = {id(p) for p in adapter_parameters(trained.model, name)}
    return {
        base_name(key): value.grad
        for key, value in trained.model.named_parameters()
        if id(value) in of and value.grad is not None
    }


@pytest.mark.parametrize("kind", ["split", "u_shaped"])
def test_one_client_steps_as_in_its_turn(kind: str) -> None:
    together = train(paradigm(kind, clients=1), 3)
    in_turn = train(paradigm(kind, clients=1, schedule="in_turn"), 3)
    assert together.reports == in_turn.reports
    assert same(together.weights, in_turn.weights)
    assert together.paradigm.traffic.by_kind() == in_turn.paradigm.traffic.by_kind()


@pytest.fixture(scope="module")
def whole() -> Trained:
    return train(Centralized(), 1, PLAIN, SAMPLES)


@pytest.mark.parametrize("defence", [None, AsTheyAre()], ids=["apart", "joined"])
@pytest.mark.parametrize("kind", ["split", "u_shaped"])
def test_a_common_step_is_that_of_the_whole_batch(
    whole: Trained, kind: str, defence: Defence | None
) -> None:
    """From one start, the server's gradient is centralised, and those of the clients add up."""
    trained = train(paradigm(kind, defence), 1, PLAIN, SAMPLES)
    assert trained.losses[0] == pytest.approx(whole.losses[0], rel=1e-5)
    assert trained.reports[0].kept == whole.reports[0].kept
    server = gradients(trained, SERVER)
    first, second = (gradients(trained, client_name(number)) for number in range(2))
    assert server and first.keys() == second.keys()
    for name, value in whole.gradients[0].items():
        found = server[name] if name in server else first[name] + second[name]
        torch.testing.assert_close(found, value, **CLOSE)


@pytest.mark.parametrize("kind", ["split", "u_shaped"])
def test_as_much_crosses_and_comes_back_as_in_turns(kind: str) -> None:
    kinds = [
        train(
            paradigm(kind, defence, schedule=schedule), 1, PLAIN, SAMPLES
        ).paradigm.traffic.by_kind()
        for defence, schedule in ((None, "in_turn"), (None, "together"), (AsTheyAre(), "together"))
    ]
    assert kinds[0] == kinds[1] == kinds[2]


def test_what_crosses_is_each_clients_own_and_gradients_return_through_the_join() -> None:
    own = paradigm("split", OthersAlone())
    run = begin(own, PLAIN, SAMPLES)
    messages, opened = [], own.opened

    def storing(*given: Any, **more: Any) -> Any:
        return opened(*given, **{**more, "store": True})

    own.opened = storing
    take = own.traffic.add
    own.traffic.add = lambda transcript, samples: (
        messages.append(transcript.messages),
        take(transcript, samples),
    )
    optimizer = own.optimizer(run.model, PLAIN)
    batch = run.model.preprocessor(SAMPLES)
    own.step(run, batch, optimizer, PLAIN.scheduler(optimizer, 1))
    sent = [[m for m in own if m.kind is Kind.ACTIVATION] for own in messages]
    returned = [[m for m in own if m.kind is Kind.GRADIENT] for own in messages]
    assert [len(each) for each in sent] == [1, 1]
    assert not returned[0]  # nobody has learned of what this client has sent
    assert bool(torch.cat(returned[1][0].rows).any())
    moved = [adapter_parameters(run.model, client_name(number)) for number in range(2)]
    assert not any(p.grad is not None and bool(p.grad.any()) for p in moved[0])
    assert any(p.grad is not None and bool(p.grad.any()) for p in moved[1])


def test_a_joined_run_learns_with_trained_sides_and_terms() -> None:
    class Both(Narrow):
        needs = Mean.needs
        join = Mean.join

    trained = train(paradigm("u_shaped", Both()), 6, RECIPE, SAMPLES)
    assert trained.losses[-1] < trained.losses[0]
    guards = trained.paradigm.guards
    assert [guards.of(client).seen for client in range(2)] == [6, 6]


def test_runs_of_other_schedules_are_told_apart() -> None:
    assert paradigm("split").channel().paradigm == "split(together)"
    assert paradigm("split", schedule="in_turn").channel().paradigm == "split"


def test_what_cannot_step_together_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot hand one adapter over"):
        SplitLearning(num_clients=2, schedule="together")
    SplitLearning(num_clients=1, schedule="together")
    with pytest.raises(ConfigError, match="needs clients that step together"):
        paradigm("split", Mean(), schedule="in_turn")
    own = paradigm("split", Mean())
    own.check_passes(8, None)
    with pytest.raises(ConfigError, match="joins the whole parts of its clients"):
        own.check_passes(8, 2)
