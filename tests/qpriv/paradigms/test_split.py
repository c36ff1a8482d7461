import pytest
import torch
from torch import Tensor

from qpriv.errors import ConfigError
from qpriv.paradigms import Centralized, Paradigm, SplitLearning, UShapedSplit
from qpriv.paradigms.split import SERVER, adapter_parameters, client_name
from qpriv.split import Direction, Kind
from tests.qpriv.paradigms.runs import (
    BATCH,
    RECIPE,
    Trained,
    base_name,
    begin,
    by_base_name,
    same,
    train,
    trained_weights,
)
from tests.tiny_models import HIDDEN_SIZE, NUM_LAYERS, random_samples

STEPS = 20
WEIGHTS = 2 * 7 * NUM_LAYERS


@pytest.fixture(scope="module")
def centralized() -> Trained:
    return train(Centralized(), STEPS)


def norm(gradients: dict[str, Tensor]) -> float:
    return float(torch.cat([value.flatten() for value in gradients.values()]).norm())


# each way a squared norm; of a split also how many answer tokens go up, and the loss down
@pytest.mark.parametrize(("paradigm", "scalars"), [(SplitLearning(cut=3), 4), (UShapedSplit(), 2)])
def test_one_client_is_centralised_training_bit_for_bit(
    centralized: Trained, paradigm: Paradigm, scalars: int
) -> None:
    """Loss, every gradient and weights after 20 steps.

    Gradients are clipped by the norm over both parties, who exchange one counted number each.
    """
    split = train(paradigm, STEPS)
    assert split.reports == centralized.reports
    for one, other in zip(centralized.gradients, split.gradients, strict=True):
        assert len(one) == WEIGHTS and same(one, other)
    norms = [norm(gradients) for gradients in split.gradients]
    assert max(norms) <= RECIPE.clip * 1.001
    assert sum(own > RECIPE.clip * 0.999 for own in norms) > STEPS / 2  # clipping is at work
    assert split.paradigm.traffic.num_bytes(kind=Kind.SCALAR) == STEPS * scalars * 8
    assert same(by_base_name(centralized.weights), by_base_name(split.weights))
    first, last = centralized.reports[0], centralized.reports[-1]
    assert first is not None and last is not None and last.loss < first.loss - 0.5


def test_clients_that_hand_over_learn_what_one_trainer_learns_from_their_turns() -> None:
    samples = random_samples(6)
    paradigm = SplitLearning(num_clients=3)
    split = train(paradigm, 2, samples=samples)
    run = begin(Centralized())
    optimizer = RECIPE.optimizer(run.model.parameters())
    scheduler = RECIPE.scheduler(optimizer, 2)
    batch = run.model.preprocessor(samples)
    for number in range(2):
        torch.manual_seed(number)
        rate = optimizer.param_groups[0]["lr"]
        for _, part in paradigm.parts(batch):
            optimizer.param_groups[0]["lr"] = rate
            constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
            optimizer.param_groups[0]["lr"] = rate
            Centralized().step(run, part, optimizer, constant)
            optimizer.param_groups[0]["lr"] = rate
        scheduler.step()
    assert same(by_base_name(split.weights), by_base_name(trained_weights(run.model)))


def test_private_clients_move_their_own_adapter_and_the_servers() -> None:
    samples = random_samples(6)
    paradigm = UShapedSplit(num_clients=3)
    run = begin(paradigm, samples=samples)
    optimizer = paradigm.optimizer(run.model, RECIPE)
    names = (SERVER, *(client_name(client) for client in range(3)))
    assert [group["name"] for group in optimizer.param_groups] == list(names)
    optimizer.param_groups[0]["lr"] = 1e-2
    for group in optimizer.param_groups:
        group["lr"] = 1e-2
    _, part = paradigm.parts(run.model.preprocessor(samples))[1]
    before = {name: [p.clone() for p in adapter_parameters(run.model, name)] for name in names}
    paradigm.turn(run, 1, part, optimizer)
    moved = {
        name: any(
            not torch.equal(old, new)
            for old, new in zip(before[name], adapter_parameters(run.model, name), strict=True)
        )
        for name in names
    }
    assert moved == {SERVER: True, "client0": False, "client1": True, "client2": False}
    owners = {id(p) for name in (SERVER, "client1") for p in adapter_parameters(run.model, name)}
    assert {id(p) for p in optimizer.state} == owners


def test_all_adapters_start_from_the_one_draw() -> None:
    drawn = by_base_name(trained_weights(begin(Centralized()).model))
    weights = trained_weights(begin(UShapedSplit(num_clients=2), samples=random_samples(4)).model)
    assert len(weights) == WEIGHTS + WEIGHTS // 2  # half of the layers are the clients'
    assert all(torch.equal(value, drawn[base_name(name)]) for name, value in weights.items())


def tokens(run, batch) -> int:
    decision = run.policy.decide(run.encode(batch), batch.samples)
    return int(run.model.sequences(batch, decision).attention_mask.sum())


@pytest.mark.parametrize(("codec", "token_bytes"), [(None, 4 * HIDDEN_SIZE), ("int8", 68)])
def test_bytes_of_a_split_step_are_the_closed_form(codec: str | None, token_bytes: int) -> None:
    paradigm = SplitLearning(codec=codec)  # type: ignore[arg-type]
    split = train(paradigm, 1)
    run = begin(Centralized())
    count = tokens(run, split.model.preprocessor(random_samples(BATCH)))
    assert split.paradigm.traffic.by_kind() == {
        "activation/up": count * token_bytes,
        "gradient/down": count * token_bytes,
        "labels/up": count * 4,
        "lengths/up": BATCH * 8,
        "scalar/up": 16,
        "scalar/down": 16,
    }
    assert split.paradigm.traffic.samples == BATCH
    assert (split.paradigm.traffic.codec_error() == {}) is (codec is None)


def test_bytes_of_a_u_shaped_step_are_the_closed_form_and_hold_no_label() -> None:
    split = train(UShapedSplit(), 1)
    count = tokens(begin(Centralized()), split.model.preprocessor(random_samples(BATCH)))
    whole = count * HIDDEN_SIZE * 4
    traffic = split.paradigm.traffic
    assert traffic.num_bytes(kind=Kind.LABELS) == 0
    assert traffic.by_kind() == {
        "activation/up": whole,
        "activation/down": whole,
        "gradient/up": whole,
        "gradient/down": whole,
        "lengths/up": BATCH * 8,
        "scalar/up": 8,
        "scalar/down": 8,
    }


def test_handing_over_is_counted_apart_from_the_server() -> None:
    samples = random_samples(4)
    split = train(SplitLearning(num_clients=2), 1, samples=samples)
    adapter = sum(p.numel() * 4 for p in adapter_parameters(split.model, client_name(0)))
    kinds = split.paradigm.traffic.by_kind()
    assert kinds["adapter/across"] == adapter
    # both moments, and the step count of every weight
    assert kinds["optimizer/across"] == 2 * adapter + 4 * WEIGHTS // 2
    up = split.paradigm.traffic.num_bytes(direction=Direction.UP)
    assert up == sum(size for key, size in kinds.items() if key.endswith("/up"))


@pytest.mark.parametrize("ask", ["cuts", "channel", "server_layers", "terms"])
def test_a_split_that_is_not_placed_has_no_cuts_to_work_with(ask: str) -> None:
    given = {"server_layers": (8,)}.get(ask, ())
    with pytest.raises(RuntimeError, match=r"UShapedSplit has no cuts yet: call place"):
        asked = getattr(UShapedSplit(), ask)
        asked(*given)


@pytest.mark.parametrize(
    ("paradigm", "cuts"), [(SplitLearning(), (16,)), (UShapedSplit(), (8, 24))]
)
def test_default_cuts_scale_with_depth(paradigm: Paradigm, cuts: tuple[int, ...]) -> None:
    assert paradigm.place(32) == cuts
    assert paradigm.place(8) == tuple(cut // 4 for cut in cuts)


@pytest.mark.parametrize(
    "paradigm",
    [SplitLearning(cut=0), SplitLearning(cut=8), UShapedSplit((6, 2)), UShapedSplit((2, 2)),
     UShapedSplit((2, 8)), UShapedSplit((0, 4)), UShapedSplit((2, 4, 6))],  # type: ignore[arg-type]
)  # fmt: skip
def test_impossible_cuts_are_refused(paradigm: Paradigm) -> None:
    with pytest.raises(ConfigError, match="from 1 to 7"):
        paradigm.place(8)


@pytest.mark.parametrize("cut", [0, 8])
def test_a_party_that_would_train_nothing_is_told_why(cut: int) -> None:
    with pytest.raises(ConfigError, match="without a decoder layer has no adapter to train"):
        SplitLearning(cut=cut).place(8)


def test_turns_on_several_processes_are_refused() -> None:
    with pytest.raises(ConfigError, match="SplitLearning on 2 processes"):
        SplitLearning().check_processes(2)
