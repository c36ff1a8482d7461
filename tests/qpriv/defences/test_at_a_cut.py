"""What any defence may rely on, in one process: with the ones that ship, and with toys."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from qpriv.defences import Defence, GaussianNoise, NoDefence
from qpriv.errors import CheckpointError, ConfigError
from qpriv.paradigms import Centralized, Federated, SplitLearning, UShapedSplit
from qpriv.paradigms.clipping import clip_factor
from qpriv.paradigms.scaling import OwnScaling
from qpriv.paradigms.split import SERVER, adapter_parameters, client_name
from qpriv.split import Kind, RandomKey
from tests.qpriv.defences.toys import Narrow, Withdraw
from tests.qpriv.paradigms.runs import BATCH, RECIPE, Trained, begin, same, train
from tests.qpriv.split.test_channel import differences, recorded, sent_in_training
from tests.tiny_models import HIDDEN_SIZE, random_samples

PARADIGMS: dict[str, Any] = {"split": SplitLearning, "u_shaped": UShapedSplit}
PLAIN = replace(RECIPE, dropout=0.0)
KEY = RandomKey(seed=5)


def defended(kind: str, defence: Defence | None, **settings: Any) -> Any:
    paradigm = PARADIGMS[kind](**settings)
    paradigm.place(8)
    if defence is not None:
        paradigm.defend(defence)
    return paradigm


@pytest.fixture(scope="module", params=PARADIGMS)
def undefended(request: pytest.FixtureRequest) -> tuple[str, Trained]:
    return request.param, train(defended(request.param, None), 2)


@pytest.mark.parametrize(
    "null", [NoDefence(), GaussianNoise(0.0, clip_norm=1e-3)], ids=["null", "zero"]
)
def test_a_defence_without_strength_changes_no_bit(
    undefended: tuple[str, Trained], null: Defence
) -> None:
    kind, plain = undefended
    trained = train(defended(kind, null), 2)
    assert trained.reports == plain.reports
    assert all(map(same, trained.gradients, plain.gradients))
    assert same(trained.weights, plain.weights)
    assert trained.paradigm.traffic.by_kind() == plain.paradigm.traffic.by_kind()


DEFENCES = {
    "noise": lambda: GaussianNoise(0.5, clip_norm=4.0, gradient_std=1e-3),
    "narrow": Narrow,
    "withdraw": Withdraw,
}


@pytest.mark.parametrize("codec", [None, "int8"])
@pytest.mark.parametrize("name", DEFENCES)
@pytest.mark.parametrize("kind", PARADIGMS)
def test_what_is_recorded_is_what_crossed(kind: str, name: str, codec: str | None) -> None:
    paradigm = defended(kind, DEFENCES[name](), codec=codec)
    run = begin(paradigm, replace(RECIPE, micro_batch_size=3))
    seen = recorded(paradigm.channel(), run, KEY)
    run.model.zero_grad()
    crossing = (Kind.ACTIVATION, Kind.GRADIENT, Kind.LENGTHS)
    sent = [m for m in sent_in_training(paradigm, run) if m.kind in crossing]
    assert len(sent) == len(seen) == 2 * (2 * len(paradigm.cuts) + 1)
    assert [differences(one, other) for one, other in zip(sent, seen, strict=True)] == [[]] * len(
        sent
    )


@pytest.mark.parametrize("kind", PARADIGMS)
def test_gradients_cross_without_the_scale_of_the_loss(kind: str) -> None:
    """A power of two scales exactly: what crosses, and what noise does to it, is bit for bit alike."""
    sent, steps = [], []
    for enabled in (False, True):
        noisy = defended(kind, GaussianNoise(0.0, gradient_std=1e-3))
        run = replace(begin(noisy, PLAIN), scaling=OwnScaling(enabled=enabled, start=2.0**10))
        sent.append(sent_in_training(noisy, run))
        steps.append({n: p.detach() for n, p in run.model.named_parameters() if p.requires_grad})
    for one, other in zip(*sent, strict=True):
        assert differences(one, other) == []
    assert any(message.kind is Kind.GRADIENT for message in sent[0])
    assert same(*steps)


def test_noise_is_that_of_its_step_and_part_and_client() -> None:
    paradigm = defended("split", GaussianNoise(0.5))
    run = begin(paradigm, PLAIN)
    keys = [KEY, KEY, RandomKey(6), RandomKey(5, 1), RandomKey(5, 0, 1), RandomKey(5, 0, 0, 1)]
    rows = [torch.cat(recorded(paradigm.channel(), run, key)[0].rows) for key in keys]
    clean = torch.cat(recorded(defended("split", None).channel(), run)[0].rows)
    assert torch.equal(rows[0], rows[1])
    assert all(not torch.equal(rows[0], other) for other in rows[2:])
    noise = rows[0] - clean
    assert float(noise.std()) == pytest.approx(0.5, rel=0.02)
    assert abs(float(noise.mean())) < 0.02


def test_long_tokens_are_scaled_down_before_the_noise() -> None:
    defence = GaussianNoise(1e-6, clip_norm=2.0)
    run = begin(defended("split", defence), PLAIN)
    clean = torch.cat(recorded(defended("split", None).channel(), run)[0].rows)
    (row,) = recorded(defended("split", defence).channel(), run)[:1]
    clipped = torch.cat(row.rows)
    norms = clean.norm(dim=-1)
    assert float(norms.max()) > 2.0
    expected = clean * (2.0 / norms.clamp(min=2.0))[:, None]
    torch.testing.assert_close(clipped, expected, rtol=1e-4, atol=1e-4)


def test_answers_cross_the_noise_alike_in_every_batch() -> None:
    paradigm = defended("split", GaussianNoise(3.0))
    run = begin(paradigm, PLAIN)
    batch = run.model.preprocessor(random_samples(BATCH))

    def answers(part) -> list[str]:
        with paradigm.answering(run.model, 0):
            decision = run.policy.decide(run.encode(part), part.samples)
            return run.model.answer(part, run.encode(part), decision, max_new_tokens=4)

    whole = answers(batch)
    assert [answers(batch[row : row + 1])[0] for row in range(BATCH)] == whole
    clean = defended("split", None)
    with clean.answering(run.model, 0):
        decision = run.policy.decide(run.encode(batch), batch.samples)
        assert run.model.answer(batch, run.encode(batch), decision, max_new_tokens=4) != whole


class TestOwnTerm:
    """The gradient of a client's own term is the client's: it neither crosses nor is scaled."""

    @pytest.fixture(params=PARADIGMS)
    def pair(self, request: pytest.FixtureRequest) -> list[Trained]:
        return [train(defended(request.param, Narrow(weight=weight)), 1) for weight in (0.0, 1e3)]

    def test_what_crosses_is_the_same_with_and_without_it(self) -> None:
        messages = []
        for weight in (0.0, 1e3):
            paradigm = defended("u_shaped", Narrow(weight=weight))
            messages.append(sent_in_training(paradigm, begin(paradigm)))
        for one, other in zip(*messages, strict=True):
            assert differences(one, other) == []

    def test_the_server_learns_the_same_and_the_client_more(self, pair) -> None:
        server, layers = [], []
        for trained in pair:
            weights = trained.paradigm.trained(trained.model, SERVER)
            server.append([weight.grad for weight in weights])
            layers.append([p.grad for p in adapter_parameters(trained.model, client_name(0))])
        assert all(one is other is None or torch.equal(one, other) for one, other in zip(*server))
        moved = [b - a for a, b in zip(*layers, strict=True)]
        assert any(bool(each.any()) for each in moved)
        senders = [t.paradigm.guards.trained(client_name(0)) for t in pair]
        moved += [b.grad - a.grad for a, b in zip(*senders, strict=True) if b.grad is not None]
        norm = float(torch.cat([each.flatten() for each in moved]).norm())
        assert norm == pytest.approx(RECIPE.clip, rel=1e-3)

    def test_it_is_asked_with_what_the_client_knows(self) -> None:
        defence = Narrow()
        train(defended("split", defence), 1, replace(RECIPE, micro_batch_size=3))
        first, second = defence.asked
        assert (first.key.micro_batch, second.key.micro_batch) == (0, 1)
        assert [len(each.keys) for each in (first, second)] == [3, 1]
        assert first.pixels is not None and len(first.pixels) == 3
        counts = [stop - start for start, stop in first.spans]
        assert [len(patches) for patches in first.patches] == counts
        assert max(counts) < 64  # the policy has dropped some

    def test_passes_weigh_as_their_samples(self) -> None:
        whole, parts = (
            train(
                defended("split", Narrow(weight=1e-2)),
                1,
                replace(PLAIN, micro_batch_size=size, clip=1e6),
                policy=None,
            )
            for size in (None, 2)
        )
        for name, gradient in whole.gradients[0].items():
            torch.testing.assert_close(parts.gradients[0][name], gradient, rtol=2e-2, atol=1e-4)


def test_bytes_follow_the_width_and_both_sides_learn() -> None:
    defence = Narrow(16)
    trained = train(defended("split", defence), 1)
    plain = train(defended("split", None), 1)
    narrow, whole = (t.paradigm.traffic.by_kind() for t in (trained, plain))
    for kind in ("activation/up", "gradient/down"):
        assert narrow[kind] * HIDDEN_SIZE == whole[kind] * 16
    for side in (defence.sender, defence.receiver):
        assert all(p.grad is not None and bool(p.grad.any()) for p in side[0].parameters())
    run = begin(defended("split", Narrow(16)), PLAIN)
    batch = run.model.preprocessor(random_samples(BATCH))
    inputs = run.model.prepare(batch, run.encode(batch))
    sizes = defended("split", Narrow(16)).channel().activation_bytes(run.model, inputs)
    assert sizes.tolist() == (inputs.answered.at(4).attention_mask.sum(dim=1) * 64).tolist()


def test_withdrawn_tokens_neither_cross_nor_cost() -> None:
    trained = train(defended("u_shaped", Withdraw()), 2)
    batch = trained.model.preprocessor(random_samples(BATCH))
    text = int(batch.attention_mask.sum()) - 64 * BATCH
    traffic = trained.paradigm.traffic.by_kind()
    assert traffic["activation/up"] == traffic["gradient/down"] == 2 * text * HIDDEN_SIZE * 4
    assert trained.losses[1] < trained.losses[0]


def test_private_clients_have_a_sender_each_and_one_receiver() -> None:
    samples = random_samples(6)
    paradigm = defended("u_shaped", Narrow(), num_clients=3)
    run = begin(paradigm, PLAIN, samples)
    own = [paradigm.guards.of(client) for client in range(3)]
    assert len({id(each.sender) for each in own}) == 3
    assert len({id(each.receiver) for each in own}) == 1
    starts = [each.sender[0].weight.detach().clone() for each in own]
    assert all(torch.equal(start, starts[0]) for start in starts)
    optimizer = paradigm.optimizer(run.model, RECIPE)
    for group in optimizer.param_groups:
        group["lr"] = 1e-2
    _, part = paradigm.parts(run.model.preprocessor(samples))[1]
    paradigm.turn(run, 1, part, optimizer)
    moved = [not torch.equal(each.sender[0].weight, start) for each, start in zip(own, starts)]
    assert moved == [False, True, False]


def test_a_sender_that_is_handed_over_is_counted() -> None:
    samples = random_samples(4)
    sizes = [
        train(
            defended("split", each, num_clients=2), 1, samples=samples
        ).paradigm.traffic.by_kind()["adapter/across"]
        for each in (None, Narrow(16))
    ]
    assert sizes[1] - sizes[0] == 4 * (2 * 16 * HIDDEN_SIZE + 16 + HIDDEN_SIZE)


@pytest.mark.parametrize("paradigm", [Centralized(), Federated()])
def test_a_paradigm_without_a_cut_refuses_a_defence(paradigm) -> None:
    with pytest.raises(ConfigError, match=r"has no cut at which noise\(0.1\) could act"):
        paradigm.defend(GaussianNoise(0.1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"std": -1.0}, "std is -1"), ({"std": float("nan")}, "std is nan"),
     ({"clip_norm": 0.0}, "clip_norm is 0"), ({"gradient_std": -0.1}, "gradient_std is -0.1")],
)  # fmt: skip
def test_impossible_noise_is_refused(settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        GaussianNoise(**settings)


def test_labels_tell_settings_apart() -> None:
    assert GaussianNoise().label == "noise(0.1)"
    assert GaussianNoise(0.5, 4.0, 1e-3).label == "noise(0.5,clip=4,gradient=0.001)"
    assert defended("split", GaussianNoise(2.0)).channel().defence_label == "noise(2)"
    assert defended("split", GaussianNoise(2.0)).channel().label == "up@4"


def test_norms_that_are_no_numbers_spare_no_party() -> None:
    assert clip_factor(0.25, 1.0) == 1.0
    assert math.isnan(clip_factor(math.nan, 1.0))


def test_a_state_without_a_defence_is_refused_by_the_name_of_what_it_lacks() -> None:
    with pytest.raises(CheckpointError, match=r"no clients\.0\.seen of the defence"):
        defended("split", Counts()).guards.load_untrained({})


class Counts(NoDefence):
    """Has a buffer and does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
