"""A hijacking server at the cut: what crosses in place of honest gradients, and whom it reaches."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from qpriv.attacks.observation import observe, public_client, scenes
from qpriv.attacks.reconstruction.detector import SplitGuard
from qpriv.attacks.reconstruction.fsha import Fsha, HijackTraining, PilotKind, PublicScenes
from qpriv.attacks.reconstruction.hijacking import HijackingServer, hijacked_client
from qpriv.attacks.token_grid import to_grid
from qpriv.metrics.reconstruction import psnr
from qpriv.split import Kind, Stages
from tests.callbacks.victims import TinyVictim
from tests.tiny_models import NUM_PATCHES, random_samples

CUT = 4
PICTURES = torch.rand(8, 3, 64, 64, generator=torch.Generator().manual_seed(0))
PUBLIC = PublicScenes(PICTURES, torch.zeros(8, 64, 64, dtype=torch.bool))


def server(
    pilot: PilotKind = "convolution", *, knows_positions: bool = True, control: bool = False
) -> HijackingServer:
    attack = Fsha(pilot=pilot, knows_positions=knows_positions, training=HijackTraining(width=8))
    public = PUBLIC
    if pilot == "base":
        victim, samples = TinyVictim().eval(), random_samples(8)
        with public_client(victim.model):
            seen = observe(victim.model, victim.policy, samples, victim.channel, CUT)
            tokens = seen.tokens(knows_positions=knows_positions)
        truth = scenes(victim.model, samples)
        public = PublicScenes(truth.pictures, truth.sensitive, tokens)
    return HijackingServer(attack, public, NUM_PATCHES, CUT, control=control)


@pytest.fixture(scope="module")
def victim() -> TinyVictim:
    return TinyVictim().eval()


def backward(victim, hijacker=None):
    """Return what came back at the cut, the gradients by layer, and the decision."""
    samples = random_samples(3)
    batch = victim.preprocessor(samples)
    features = victim.encode(batch)
    decision = victim.policy.decide(features, samples)
    channel = victim.channel
    if hijacker is not None:
        hijacker.told = decision.kept
        channel = channel.tapped(CUT, Stages(encode_gradient=hijacker.hijack))
    victim.zero_grad()
    with channel.record(victim.model, gradients=True) as transcript:
        if hijacker is not None:
            hijacker.transcript = transcript
        victim.model(batch, features, decision).loss.backward()
    gradients = {n: p.grad.clone() for n, p in victim.named_parameters() if p.grad is not None}
    return transcript, gradients, decision


def layer(name: str) -> int:
    return int(name.split("layers.")[1].split(".")[0])


def test_image_tokens_get_the_attackers_gradient_and_text_none(victim) -> None:
    honest, own, _ = backward(victim)
    hijacker = server()
    crossed, bent, decision = backward(victim, hijacker)
    tokens = to_grid(crossed.image_rows(CUT), decision.kept, NUM_PATCHES)
    drawn = torch.Generator().manual_seed(0)
    public = PUBLIC[torch.randint(8, (3,), generator=drawn)]
    crafted = server().attack.step(tokens, public)
    expected = [crafted[row][kept] for row, kept in enumerate(decision.kept)]
    size = torch.cat(honest.rows(CUT, Kind.GRADIENT)).norm()
    scale = size / torch.cat(expected).norm()
    gradients = crossed.select(CUT, Kind.GRADIENT)[0]
    for row, (start, stop) in enumerate(gradients.spans):
        returned = gradients.rows[row]
        assert torch.allclose(returned[start:stop], scale * expected[row], rtol=1e-3, atol=1e-8)
        assert not returned[:start].any() and not returned[stop:].any()
    assert torch.cat(gradients.rows).norm() == pytest.approx(float(size), rel=1e-4)
    # the server's layers learn as if nothing were wrong, the client's learn something else
    for name in own:
        same = torch.equal(own[name], bent[name])
        assert same == (layer(name) >= CUT) or not own[name].any()


def test_twin_goes_on_where_it_was_and_the_victim_is_left_alone(victim) -> None:
    victim.recipe = replace(victim.recipe, dropout=0.0)
    samples = random_samples(12)
    before = {name: value.clone() for name, value in victim.state_dict().items()}
    weights = []
    for parts in ((4,), (2, 2)):
        carried = None
        for steps in parts:
            guard = SplitGuard(start=1, fake_share=0.5)
            with hijacked_client(victim, server(), batch_size=4, guard=guard, seed=5) as client:
                if carried is not None:
                    client.load_state_dict(carried)
                client.train(samples, steps)
                carried = deepcopy(client.state_dict())
        assert carried["attack"]["steps_done"] == 4
        assert carried["guard"]["batches"] == 4
        weights.append(carried["attack"]["networks"])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert all(torch.equal(value, before[name]) for name, value in victim.state_dict().items())
    assert not any("shadow" in name for name, _ in victim.named_parameters())


def test_client_follows_its_recipe_and_a_deadline_stops_it(victim) -> None:
    with hijacked_client(victim, server(knows_positions=False), batch_size=4) as client:
        assert client.optimizer.defaults["lr"] == victim.recipe.learning_rate
        start = victim.model.adapter_state(client.adapter)
        client.train(random_samples(6), 2)
        moved = victim.model.adapter_state(client.adapter)
        early = [
            key for key in moved if layer(key) < CUT and not torch.equal(start[key], moved[key])
        ]
        assert early and client.server.attack.steps_done == 2
        client.train(random_samples(6), 5, deadline=0.0)
        assert client.server.attack.steps_done == 2
        assert not victim.model.training
    with hijacked_client(victim, server(), learning_rate=1e-5, batch_size=4) as client:
        assert client.optimizer.defaults["lr"] == 1e-5


@pytest.mark.parametrize("knows", [True, False])
def test_the_base_pilots_decoder_reads_linearly_before_it_has_learned(victim, knows) -> None:
    hijacker = server("base", knows_positions=knows)
    known, pictures = hijacker.public.tokens, hijacker.public.pictures
    assert known is not None
    hijacker.attack.prepare(known, hijacker.public)
    blind = server("base", knows_positions=knows).attack
    blind.prepare(known, replace(hijacker.public, tokens=None))  # the same networks, not fitted
    read, guessed = (psnr(each.decode(known), pictures).mean() for each in (hijacker.attack, blind))
    assert read > guessed + 1
    backward(victim, hijacker)
    assert hijacker.attack.steps_done == 1


def test_the_control_returns_the_honest_gradient_and_learns(victim) -> None:
    _, honest, _ = backward(victim)
    hijacker = server(pilot="base", control=True)
    _, same, _ = backward(victim, hijacker)
    assert hijacker.attack.steps_done == 1
    assert all(torch.equal(honest[name], same[name]) for name in honest)
