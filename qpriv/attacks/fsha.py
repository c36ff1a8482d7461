"""FSHA: an active server hijacks the client's training through the gradients it returns.

Pasquini, Ateniese, Bernaschi, *Unleashing the Tiger: Inference Attacks on Split Learning*, CCS
2021, section 4, in the WGAN form of its code. The server gives up the task. It trains a pilot and
a decoder, an auto-encoder of public pictures, and a critic that tells the client's features from
the pilot's. The gradient it returns makes the client fool the critic: its features move into the
pilot's space, where the decoder reads them.

The gradient penalty is over the whole sample; the published code takes it per channel. A client
of LoRA adapters on a frozen base can move its features less than one that trains from nothing.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, mse_loss
from torch.optim import Adam

from qpriv.errors import ConfigError

from .alignment import gradient_penalty
from .inverter import Inverter, TokenGrid
from .observation import Observation
from .threat import Positions, ThreatModel

STRONG_STEPS = 5000
"""With fewer steps than this a figure is marked as a short attacker's (10,000 as published)."""


@dataclass(frozen=True, kw_only=True)
class HijackTraining:
    """How the attacker's networks are trained; the published rates are for wide networks.

    Args:
        learning_rate: Of pilot and decoder, Adam (1e-5 as published).
        critic_rate: Of the critic, Adam (1e-4 as published).
        penalty: Weight of the gradient penalty (500 as published, there per channel).
        noise: Spread of the noise on codes in the decoder's training, in units of features; the
            client's features will never lie exactly where the pilot's do (0 as published).
        width: Width of the decoder's residual network, and of critic and pilot.
        depth: Number of the decoder's transformer layers.

    Raises:
        ConfigError: If a number is out of its range.
    """

    learning_rate: float = 1e-3
    critic_rate: float = 3e-4
    penalty: float = 10.0
    noise: float = 0.3
    width: int = 96
    depth: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("learning_rate", "critic_rate", "width", "depth"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="choose more than 0")
        for name in ("penalty", "noise"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="choose 0 or more")


class Pilot(nn.Module):
    """The server's own client: pictures ``[B, 3, H, W]`` to tokens ``[B, N, d]``.

    Linear, as published: its space is easy to read, and the critic leads the client there.

    Args:
        token_width: Width ``d`` of a token.
        patch_size: Side of a patch in pixels.
        width: Channels between its two layers.
    """

    def __init__(self, token_width: int, patch_size: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, patch_size, stride=patch_size),
            nn.Conv2d(width, token_width, 3, padding=1),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the tokens, row by row."""
        cells: Tensor = self.layers(2 * pictures - 1)
        return cells.flatten(2).transpose(1, 2)


class FeatureCritic(nn.Module):
    """Scores grids of tokens ``[B, N, d]`` for coming from the client, ``[B]``.

    Convolutions and residual blocks over the grid, as published: it must see how the tokens of
    one picture go together, or the client is led to the pilot's tokens in the wrong places.

    Args:
        token_width: Width ``d`` of a token.
        grid: Rows and columns of patches.
        width: Channels.
        blocks: Residual blocks (6 as published).
    """

    def __init__(
        self, token_width: int, grid: tuple[int, int], width: int, blocks: int = 2
    ) -> None:
        super().__init__()
        self.grid = grid
        self.enter = nn.Conv2d(token_width, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LeakyReLU(0.2),
                nn.Conv2d(width, width, 3, padding=1),
                nn.LeakyReLU(0.2),
                nn.Conv2d(width, width, 3, padding=1),
            )
            for _ in range(blocks)
        )
        self.shrink = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.score = nn.Linear(width * ((grid[0] + 1) // 2) * ((grid[1] + 1) // 2), 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores."""
        cells = self.enter(tokens.transpose(1, 2).reshape(len(tokens), -1, *self.grid))
        for block in self.blocks:
            cells = cells + block(cells)
        scores: Tensor = self.score(leaky_relu(self.shrink(cells), 0.2).flatten(1))
        return scores.squeeze(-1)


class Fsha:
    """Answer every batch of a client with a hijacking gradient, then invert what crosses.

    Features are judged in units of their spread when the attack began, so that neither side
    starts out of the other's reach.

    Args:
        positions: Whether the attacker knows which patches were kept.
        training: How its networks are trained.
        patch_size: Side of a reconstructed patch in pixels.
        seed: Seed of its weights and mixtures.
    """

    def __init__(
        self,
        *,
        positions: Positions = "known",
        training: HijackTraining | None = None,
        patch_size: int = 8,
        seed: int = 0,
    ) -> None:
        self.positions, self.training = positions, training or HijackTraining()
        self.patch_size, self.seed = patch_size, seed
        self.networks: nn.ModuleDict | None = None
        self._mean, self._spread = torch.zeros(()), torch.ones(())
        self.steps_done = 0
        self.reconstruction_loss = float("nan")

    @property
    def threat_model(self) -> ThreatModel:
        """Return what the attacker is granted."""
        return ThreatModel(
            active=True,
            auxiliary="in-domain pictures",
            knows_policy=False,
            positions=self.positions,
            access="activations, and the gradients it returns",
        )

    @property
    def short(self) -> bool:
        """Return whether the attacker had too few steps for its figure to be a bound."""
        return self.steps_done < STRONG_STEPS

    def step(self, private: TokenGrid, public: Tensor) -> Tensor:
        """Learn from one batch that crossed, and return the gradient for it.

        All three gradients are taken at the same weights, as in the published code.

        Args:
            private: The client's tokens, on the grid.
            public: As many pictures of the attacker's own, ``[B, 3, H, W]`` in [0, 1].

        Returns:
            Gradient of the mean critic score, ``[B, N, d]``: the client that follows it down
            fools the critic (equation 3).
        """
        if self.networks is None:
            self._build(private, public.shape[-2:])
        assert self.networks is not None
        self.networks.train()
        critic, present = self.networks["critic"], private.present.unsqueeze(-1)
        tokens = private.tokens.detach().requires_grad_(True)
        features = self._scaled(tokens) * present
        (gradient,) = torch.autograd.grad(critic(features).mean(), tokens)
        # a public picture is seen through the holes of a private one
        coded = self.networks["pilot"](public) * present
        generator = torch.Generator().manual_seed(self.seed + self.steps_done)
        blur = self.training.noise * torch.randn(coded.shape, generator=generator)
        self._learn_to_decode(TokenGrid(coded + blur * present, private.present), public)
        mix = torch.rand(len(coded), generator=generator)
        self._learn_to_tell(features.detach(), coded.detach(), mix)
        self.steps_done += 1
        return gradient

    @torch.no_grad()
    def invert(self, seen: Observation) -> Tensor:
        """Return a picture for everything that crossed, ``[n, 3, H, W]`` in [0, 1]."""
        return self.decode(seen.tokens(self.positions))

    @torch.no_grad()
    def decode(self, grid: TokenGrid) -> Tensor:
        """Return a picture for each of some tokens on the grid."""
        if self.networks is None:
            raise RuntimeError("hijack a client before you invert it")
        decoder = self.networks.eval()["decoder"]
        starts = range(0, len(grid), 128)
        parts = (grid[slice(start, start + 128)] for start in starts)
        restored = [decoder(TokenGrid(self._scaled(p.tokens) * p.present.unsqueeze(-1), p.present))
                    for p in parts]  # fmt: skip
        return torch.cat(restored).clamp(0, 1)

    def state_dict(self) -> dict[str, Any]:
        """Return the attacker as it is, to go on with after the next epoch."""
        if self.networks is None:
            return {"steps_done": 0}
        return {
            "steps_done": self.steps_done,
            "shape": self._shape,
            "units": [self._mean, self._spread],
            "networks": self.networks.state_dict(),
            "optimizers": [self._coders.state_dict(), self._judge.state_dict()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over an attacker that attacked the same cut of the same model."""
        self.steps_done = state["steps_done"]
        if self.steps_done == 0:
            return
        self._mean, self._spread = state["units"]
        self._make(tuple(state["shape"]))
        assert self.networks is not None
        self.networks.load_state_dict(state["networks"])
        for optimizer, own in zip((self._coders, self._judge), state["optimizers"], strict=True):
            optimizer.load_state_dict(own)

    def _scaled(self, tokens: Tensor) -> Tensor:
        scaled: Tensor = (tokens - self._mean) / self._spread
        return scaled

    def _build(self, private: TokenGrid, size: torch.Size) -> None:
        tokens = private.tokens[private.present]
        self._mean, self._spread = tokens.mean(dim=0), tokens.std(dim=0).clamp(min=1e-6)
        rows, columns = size[0] // self.patch_size, size[1] // self.patch_size
        self._make((tokens.shape[1], rows, columns))

    def _make(self, shape: tuple[int, ...]) -> None:
        self._shape = token_width, rows, columns = shape
        width = self.training.width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.networks = nn.ModuleDict(
                {
                    "pilot": Pilot(token_width, self.patch_size, width),
                    "decoder": Inverter(
                        token_width,
                        (rows, columns),
                        self.patch_size,
                        width=width,
                        depth=self.training.depth,
                    ),
                    "critic": FeatureCritic(token_width, (rows, columns), width),
                }
            )
        coders = [*self.networks["pilot"].parameters(), *self.networks["decoder"].parameters()]
        self._coders = Adam(coders, self.training.learning_rate)
        self._judge = Adam(self.networks["critic"].parameters(), self.training.critic_rate)

    def _learn_to_decode(self, coded: TokenGrid, public: Tensor) -> None:
        """Train pilot and decoder to give public pictures back (equation 1)."""
        assert self.networks is not None
        loss = mse_loss(self.networks["decoder"](coded), public)
        self._coders.zero_grad()
        torch.autograd.backward(loss)
        self._coders.step()
        self.reconstruction_loss = float(loss.detach())

    def _learn_to_tell(self, features: Tensor, coded: Tensor, mix: Tensor) -> None:
        """Train the critic to score the client's features high, the pilot's low (equation 2)."""
        assert self.networks is not None
        critic = self.networks["critic"]
        loss = critic(coded).mean() - critic(features).mean()
        loss = loss + self.training.penalty * gradient_penalty(critic, coded, features, mix)
        self._judge.zero_grad()
        torch.autograd.backward(loss)
        self._judge.step()
