"""FSHA: an active server hijacks the client's training through the gradients it returns.

Pasquini, Ateniese, Bernaschi, *Unleashing the Tiger: Inference Attacks on Split Learning*, CCS
2021, section 4, in the WGAN form of its code. The server gives up the task. It trains a pilot and
a decoder, an auto-encoder of public pictures, and a critic that tells the client's features from
the pilot's. The gradient it returns makes the client fool the critic: its features move into the
pilot's space, where the decoder reads them.

The published pilot is a network from nothing (``convolution``). A client of LoRA adapters on a
frozen base cannot be led into such a space: its features move too little. Its server holds the
public base model, though, and a pilot that starts as that (``base``) starts where the client is.

The gradient penalty is over the whole sample; the published code takes it per channel.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.optim import Adam

from qpriv.declaration import Attack, Row, answered, aside
from qpriv.errors import ConfigError
from qpriv.models.precision import full_precision
from qpriv.quantity import Quantity

from ..observation import Observation
from ..threat import ThreatModel
from ..token_grid import TokenGrid
from . import residual, scoring
from .alignment import Aligner, gradient_penalty
from .fora import SUPERVISED
from .fsha_networks import FeatureCritic, Pilot
from .inverter import Inverter, weighted_error

PilotKind = Literal["base", "convolution"]
"""Where the pilot starts: as the public base model, or as a network from nothing."""

STRONG_STEPS = 5000
"""With fewer steps than this a figure is marked as a short attacker's (10,000 as published)."""

NOTICED = (
    Quantity(
        name="task_accuracy",
        title="Accuracy of the hijacked twin",
        meaning="Share of unseen questions that the hijacked client's twin answers right.",
        direction="use",
        baseline="task_accuracy_honest",
    ),
    Quantity(
        name="task_accuracy_honest",
        title="Accuracy of the honest victim",
        meaning="The same of the victim, which is not hijacked.",
        direction="use",
    ),
    Quantity(
        name="splitguard_score",
        title="SplitGuard's score",
        meaning="Near 1 for an honest server.",
    ),
)
"""What the client would notice."""

_FIGURES = (
    *aside(scoring.QUANTITIES, *scoring.WEAKER),
    *scoring.RECOVERED,
    *NOTICED,
    *aside(residual.QUANTITIES),
)
ATTACKS = (
    Attack(
        name="fsha",
        title="Feature-space hijacking (FSHA)",
        quantities=answered(_FIGURES, "FSHA"),
        rows=(
            Row(
                what="FSHA, `FshaProbe`",
                who="server; yes",
                holds="in-domain scenes, the public base model, the gradients it returns",
                knows="the pilot runs the policy; known or unknown",
                measures="PSNR as above; re-identification; the twin's task accuracy",
                beside="the honest victim's accuracy; SplitGuard's score (`detector`)",
                source="Pasquini et al., CCS 2021; Erdogan et al., WPES 2022",
            ),
        ),
        bound=SUPERVISED.name,
    ),
    Attack(
        name="fsha_control",
        title="Feature-space hijacking (control: the honest gradient is returned)",
        # a control answers no question about what leaks
        quantities=tuple(replace(own, question="") for own in _FIGURES),
        bound=SUPERVISED.name,
    ),
    Attack(
        name="fsha_convolution",
        title="Feature-space hijacking (FSHA, published pilot)",
        quantities=answered(_FIGURES, "FSHA, published pilot"),
        bound=SUPERVISED.name,
    ),
)


@dataclass(frozen=True, kw_only=True)
class HijackTraining:
    """How the attacker's networks are trained; the published rates are for wide networks.

    The critic must be faster than the client, or it sends it away before it knows where to.

    Args:
        learning_rate: Of pilot and decoder, Adam (1e-5 as published).
        critic_rate: Of the critic, Adam (1e-4 as published).
        penalty: Weight of the gradient penalty (500 as published, there per channel).
        noise: Spread of the noise on codes in the decoder's training, in units of features; the
            client's features will never lie exactly where the pilot's do (0 as published).
        sensitive_weight: How much more the decoder's error counts inside a sensitive box of the
            attacker's own pictures (0 as published).
        width: Width of the decoder's residual network, and of critic and pilot.
        depth: Number of the decoder's transformer layers.

    Raises:
        ConfigError: If a number is out of its range.
    """

    learning_rate: float = 3e-4
    critic_rate: float = 1e-3
    penalty: float = 10.0
    noise: float = 0.0
    sensitive_weight: float = 4.0
    width: int = 96
    depth: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("learning_rate", "critic_rate", "width", "depth"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="choose more than 0")
        for name in ("penalty", "noise", "sensitive_weight"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="choose 0 or more")


@dataclass(frozen=True)
class PublicScenes:
    """The attacker's own scenes.

    Args:
        pictures: ``[m, 3, H, W]`` in [0, 1].
        sensitive: Pixels in a sensitive box, ``[m, H, W]`` bool.
        tokens: What the public base model sends for them under the victim's policy; None for a
            pilot that reads pixels.
    """

    pictures: Tensor
    sensitive: Tensor
    tokens: TokenGrid | None = None

    def __len__(self) -> int:
        """Return the number of scenes."""
        return len(self.pictures)

    def __getitem__(self, rows: Tensor | slice) -> Self:
        """Return some of the scenes."""
        tokens = None if self.tokens is None else self.tokens[rows]
        return type(self)(self.pictures[rows], self.sensitive[rows], tokens)


class Fsha:
    """Answer every batch of a client with a hijacking gradient, then invert what crosses.

    Features are judged in units of their spread when the attack began, so that neither side
    starts out of the other's reach.

    Args:
        pilot: Where the pilot starts.
        knows_positions: Whether the attacker knows which patches were kept.
        training: How its networks are trained.
        patch_size: Side of a reconstructed patch in pixels.
        seed: Seed of its weights and mixtures.
    """

    def __init__(
        self,
        *,
        pilot: PilotKind = "base",
        knows_positions: bool = True,
        training: HijackTraining | None = None,
        patch_size: int = 8,
        seed: int = 0,
    ) -> None:
        self.pilot: PilotKind = pilot
        self.knows_positions, self.training = knows_positions, training or HijackTraining()
        self.patch_size, self.seed = patch_size, seed
        self.networks: nn.ModuleDict | None = None
        self._mean, self._spread = torch.zeros(()), torch.ones(())
        self.steps_done = 0
        self.reconstruction_loss = float("nan")

    @property
    def threat_model(self) -> ThreatModel:
        """Return what the attacker is granted."""
        scenes = "in-domain scenes and their boxes"
        based = self.pilot == "base"
        return ThreatModel(
            active=True,
            auxiliary=f"{scenes}, through the public base model" if based else scenes,
            knows_policy=based,
            knows_positions=self.knows_positions,
            access="activations, and the gradients it returns",
        )

    @property
    def short(self) -> bool:
        """Return whether the attacker had too few steps for its figure to be a bound."""
        return self.steps_done < STRONG_STEPS

    @full_precision()
    def prepare(self, private: TokenGrid, public: PublicScenes) -> None:
        """Make the networks, unless there are any; the more public scenes, the better they start.

        Args:
            private: The first tokens of the client that crossed, on the grid.
            public: The attacker's scenes.
        """
        if self.networks is not None:
            return
        tokens = private.tokens[private.present]
        self._mean, self._spread = tokens.mean(dim=0), tokens.std(dim=0).clamp(min=1e-6)
        rows, columns = (side // self.patch_size for side in public.pictures.shape[-2:])
        self._make((tokens.shape[1], rows, columns))
        if public.tokens is not None:  # features are the base model's: read them linearly at once
            assert self.networks is not None
            grid = self._scaled(public.tokens)
            self.networks["decoder"].normalise(grid)
            self.networks["decoder"].fit_linear(grid, public.pictures)

    @full_precision()
    def step(self, private: TokenGrid, public: PublicScenes) -> Tensor:
        """Learn from one batch that crossed, and return the gradient for it.

        All three gradients are taken at the same weights, as in the published code.

        Args:
            private: The client's tokens, on the grid.
            public: As many scenes of the attacker's own.

        Returns:
            Gradient of the mean critic score, ``[B, N, d]``: the client that follows it down
            fools the critic (equation 3).
        """
        self.prepare(private, public)
        assert self.networks is not None
        self.networks.train()
        critic, tokens = self.networks["critic"], private.tokens.detach().requires_grad_(True)
        features = self._scaled(TokenGrid(tokens, private.present)).tokens
        (gradient,) = torch.autograd.grad(critic(features).mean(), tokens)
        coded = self._coded(public, private.present)
        generator = torch.Generator().manual_seed(self.seed + self.steps_done)
        blur = self.training.noise * torch.randn(coded.tokens.shape, generator=generator)
        blurred = coded.tokens + blur * coded.present.unsqueeze(-1)
        self._learn_to_decode(TokenGrid(blurred, coded.present), public)
        mix = torch.rand(len(coded), generator=generator)
        self._learn_to_tell(features.detach(), coded.tokens.detach(), mix)
        self.steps_done += 1
        return gradient

    @torch.no_grad()
    def invert(self, seen: Observation) -> Tensor:
        """Return a picture for everything that crossed, ``[n, 3, H, W]`` in [0, 1]."""
        return self.decode(seen.tokens(knows_positions=self.knows_positions))

    @full_precision()
    @torch.no_grad()
    def decode(self, grid: TokenGrid) -> Tensor:
        """Return a picture for each of some tokens on the grid."""
        return self.paint(self.crossed(grid))

    @full_precision()
    @torch.no_grad()
    def paint(self, grid: TokenGrid) -> Tensor:
        """Return a picture for each of some tokens as `own` and `crossed` give them."""
        if self.networks is None:
            raise RuntimeError("hijack a client before you invert it")
        decoder = self.networks.eval()["decoder"]
        starts = range(0, len(grid), 128)
        parts = (grid[slice(start, start + 128)] for start in starts)
        return torch.cat([decoder(part) for part in parts]).clamp(0, 1)

    @full_precision()
    @torch.no_grad()
    def own(self, grid: TokenGrid, pictures: Tensor) -> TokenGrid:
        """Return the pilot's codes of the attacker's own scenes.

        Args:
            grid: What the public base model sends for them under the victim's policy.
            pictures: The scenes; what a pilot reads that starts from nothing.
        """
        tokens = grid if self.pilot == "base" else None
        unmarked = torch.zeros_like(pictures[:, 0], dtype=torch.bool)
        return self._coded(PublicScenes(pictures, unmarked, tokens), grid.present)

    @torch.no_grad()
    def crossed(self, grid: TokenGrid) -> TokenGrid:
        """Return the client's tokens as `paint` takes them."""
        return self._scaled(grid)

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

    def _scaled(self, grid: TokenGrid) -> TokenGrid:
        """Return tokens in units of the client's spread, zero where nothing is."""
        scaled = (grid.tokens - self._mean) / self._spread
        return TokenGrid(scaled * grid.present.unsqueeze(-1), grid.present)

    def _coded(self, public: PublicScenes, holes: Tensor) -> TokenGrid:
        """Return the pilot's codes of public scenes, with holes as pruning leaves them."""
        assert self.networks is not None
        pilot = self.networks["pilot"]
        if public.tokens is None:  # a picture is seen through the holes of a private one
            return TokenGrid(pilot(public.pictures) * holes.unsqueeze(-1), holes)
        grid = self._scaled(public.tokens)
        return TokenGrid(pilot(grid.tokens) * grid.present.unsqueeze(-1), grid.present)

    def _make(self, shape: tuple[int, ...]) -> None:
        self._shape = token_width, rows, columns = shape
        width = self.training.width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.networks = nn.ModuleDict(
                {
                    "pilot": Aligner(token_width, width)
                    if self.pilot == "base"
                    else Pilot(token_width, self.patch_size, width),
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

    def _learn_to_decode(self, coded: TokenGrid, public: PublicScenes) -> None:
        """Train pilot and decoder to give public pictures back (equation 1)."""
        assert self.networks is not None
        weights = 1 + self.training.sensitive_weight * public.sensitive.float()
        loss = weighted_error(self.networks["decoder"](coded), public.pictures, weights)
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
