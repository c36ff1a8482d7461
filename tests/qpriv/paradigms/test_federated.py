from dataclasses import replace

import pytest
import torch
from torch.optim import SGD

from qpriv.errors import ConfigError
from qpriv.paradigms import Centralized, Federated
from qpriv.paradigms.averaging import average_factors
from qpriv.paradigms.weights import load_weights, named_weights
from qpriv.split import Kind
from tests.qpriv.paradigms.runs import RECIPE, begin, by_base_name, same, train, trained_weights
from tests.tiny_models import random_samples

PLAIN = replace(RECIPE, dropout=0.0)


def test_one_client_and_one_local_step_is_centralised_sgd() -> None:
    federated = train(
        Federated(num_clients=1, local_steps=1, local_optimizer="sgd"), 5, recipe=PLAIN
    )
    run = begin(Centralized(), PLAIN)
    optimizer = SGD(run.model.parameters(), lr=PLAIN.learning_rate)
    scheduler = PLAIN.scheduler(optimizer, 5)
    batch = run.model.preprocessor(random_samples(4))
    reports = [Centralized().step(run, batch, optimizer, scheduler) for _ in range(5)]
    assert federated.reports == reports
    assert same(federated.weights, trained_weights(run.model))


def test_a_round_is_the_weighted_mean_of_clients_trained_alone() -> None:
    samples = random_samples(7)
    paradigm = Federated(num_clients=2, local_steps=2)
    run = begin(paradigm, PLAIN, samples)
    batches = [run.model.preprocessor(samples[:4]), run.model.preprocessor(samples[4:])]
    before = trained_weights(run.model)
    outcome = paradigm.train_round(run, batches, [1e-2, 5e-3], store=True)
    assert same(trained_weights(run.model), before), "the model's weights stay as they were"
    sent = outcome.transcript.weights()
    down, up = sent[::2], sent[1::2]
    assert same(down[0], down[1]) and not same(up[0], up[1])
    assert outcome.weights == dict(enumerate(paradigm.shards.sizes(samples)))
    assert same(outcome.mean, average_factors(up, list(outcome.weights.values())))
    assert 0 < outcome.error < 1
    alone = Federated(num_clients=1)
    own = [
        run.model.preprocessor([s for s in part.samples if paradigm.shards.client(s) == 1])
        for part in batches
    ]
    rates = [1e-2, 5e-3]
    again = alone.train_round(begin(alone, PLAIN), own, rates, store=True).transcript.weights()
    assert same(again[1], up[1])


def test_a_client_trains_with_a_fresh_optimiser_in_every_round() -> None:
    """A new AdamW's first step moves every weight by its learning rate, and decays it."""
    paradigm, rate = Federated(num_clients=1, local_steps=1), 1e-2
    run = begin(paradigm, PLAIN)
    batch = run.model.preprocessor(random_samples(4))
    for paradigm.round in range(3):
        before = named_weights(run.model)
        after = paradigm.train_round(run, [batch], [rate]).mean
        load_weights(run.model, after)
    kept = 1 - rate * PLAIN.weight_decay
    moved = torch.cat([(after[name] - before[name] * kept).flatten() for name in after]).abs()
    assert ((moved / rate - 1).abs() < 1e-2).double().mean() > 0.95


def test_the_server_sees_adapters_and_counts_and_nothing_else() -> None:
    paradigm = Federated(num_clients=3, local_steps=1)
    run = begin(paradigm, samples=random_samples(6))
    batch = run.model.preprocessor(random_samples(6))
    outcome = paradigm.train_round(run, [batch], [1e-2], store=True)
    messages = outcome.transcript.messages
    assert {message.kind for message in messages} == {Kind.ADAPTER, Kind.SCALAR}
    shapes = {name: value.shape for name, value in run.model.adapter_state().items()}
    for adapter in outcome.transcript.weights():
        assert {name: value.shape for name, value in adapter.items()} == shapes
    size = sum(value.numel() * 4 for value in run.model.adapter_state().values())
    assert outcome.transcript.num_bytes(kind=Kind.ADAPTER) == 2 * 3 * size
    assert outcome.transcript.num_bytes(kind=Kind.SCALAR) == 3 * 8
    assert [m.client for m in messages] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_weights_between_rounds_are_the_servers() -> None:
    paradigm = Federated(num_clients=2, local_steps=3)
    run = begin(paradigm)
    optimizer = paradigm.optimizer(run.model, RECIPE)
    scheduler = RECIPE.scheduler(optimizer, 4)
    batch = run.model.preprocessor(random_samples(4))
    before = trained_weights(run.model)
    assert paradigm.step(run, batch, optimizer, scheduler) is None
    assert paradigm.step(run, batch, optimizer, scheduler) is None
    assert same(trained_weights(run.model), before)
    assert paradigm.step(run, batch, optimizer, scheduler) is not None
    assert not same(trained_weights(run.model), before)
    assert paradigm.step(run, batch, optimizer, scheduler, last=True) is not None
    assert paradigm.round == 2 and scheduler.last_epoch == 4


def test_part_of_the_clients_is_drawn_anew_for_every_round() -> None:
    paradigm = Federated(num_clients=10, participation=0.3)
    drawn = [tuple(paradigm.clients_of_round(seed=1, number=number)) for number in range(20)]
    assert {len(set(clients)) for clients in drawn} == {3}
    assert len(set(drawn)) > 10 and {c for own in drawn for c in own} == set(range(10))
    assert tuple(paradigm.clients_of_round(seed=1)) == drawn[0]  # the coming one


def test_products_learn_as_well() -> None:
    samples = random_samples(6)
    paradigm = Federated(num_clients=2, local_steps=2, average="products")
    trained = train(paradigm, 4, recipe=PLAIN, samples=samples)
    losses = [report.loss for report in trained.reports if report is not None]
    assert losses[1] < losses[0]
    assert 0 < trained.paradigm.metrics["averaging_error"] < 1
    assert all(torch.isfinite(value).all() for value in by_base_name(trained.weights).values())


def test_a_run_saved_again_before_it_has_read_its_open_round_again_loses_none_of_it() -> None:
    paradigm = Federated(num_clients=2, local_steps=4)
    state = {**paradigm.state(), "round": 3, "pending": 2}
    paradigm.load_state(state)
    assert paradigm.state() == state
    assert paradigm.untrained_batches() == 2
    paradigm.resume([object(), object()])
    assert (paradigm.untrained_batches(), paradigm.state()) == (0, state)


@pytest.mark.parametrize(
    "settings",
    [{"local_steps": 0}, {"participation": 0.0}, {"participation": 1.5}, {"num_clients": 0}],
)
def test_impossible_settings_are_refused(settings) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Federated(**settings)
