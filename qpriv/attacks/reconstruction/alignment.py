"""Alignment of a substitute client's features with the victim's, by MK-MMD and a critic.

Xu et al., *A Stealthy Wrongdoer*, CVPR 2024 (arXiv 2405.04115), equations 3 to 5. The victim's
features and the attacker's are never paired: only their distributions are aligned.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Adam

from ..token_grid import TokenGrid

KERNEL_SCALES = tuple(2.0**power for power in range(-3, 2))
"""Bandwidths of the five Gaussian kernels, in multiples of the mean squared distance."""


def mk_mmd(first: Tensor, second: Tensor) -> Tensor:
    """Return the multi-kernel maximum mean discrepancy of two batches of features.

    The sum over five Gaussian kernels ``exp(-d^2 / (2 s^2))`` whose ``s^2`` are `KERNEL_SCALES`
    times the mean squared distance over both batches (without gradient, the diagonal's zeros
    included). Kernels within a batch are averaged off the diagonal, and the published constant
    ``2 / (B - 1)`` is added. The published code builds a tensor of ``(2 B, 2 B, F)`` for each
    kernel; one Gram matrix gives the same numbers.

    Args:
        first: ``[B, F]``.
        second: ``[B, F]``.

    Returns:
        A scalar.

    Raises:
        ValueError: If the batches differ in shape or hold fewer than two rows.
    """
    if first.shape != second.shape or len(first) < 2:
        shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
        raise ValueError(f"two batches of one shape and at least two rows are needed, not {shapes}")
    count = len(first)
    both = torch.cat([first, second])
    both = both - both.detach().mean(dim=0)  # distances stay, rounding errors shrink
    squares = both.square().sum(dim=1)
    apart = 1 - torch.eye(2 * count, device=both.device, dtype=both.dtype)
    distances = (squares[:, None] + squares[None] - 2 * both @ both.T).clamp(min=0) * apart
    bandwidth = distances.detach().mean()
    scales = torch.tensor(KERNEL_SCALES, device=both.device, dtype=both.dtype)
    kernels = torch.exp(-distances[None] / (2 * scales[:, None, None] * bandwidth)).sum(dim=0)
    kernels = kernels * apart
    within = (kernels[:count, :count].sum() + kernels[count:, count:].sum()) / (count * (count - 1))
    return within - 2 * kernels[:count, count:].mean() + 2 / (count - 1)


def gradient_penalty(critic: nn.Module, first: Tensor, second: Tensor, mix: Tensor) -> Tensor:
    """Return the mean squared deviation from 1 of the critic's gradient norm, per sample.

    Gulrajani et al. 2017, at random points between the batches. The norm is over all numbers of
    a sample; FSHA's code takes it per channel by mistake.

    Args:
        critic: From features ``[B, ...]`` to ``[B]``.
        first: Features ``[B, ...]``.
        second: Features of the same shape.
        mix: Share of the second in each point, ``[B]``.
    """
    share = mix.reshape(-1, *[1] * (first.ndim - 1))
    between = ((1 - share) * first + share * second).detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    deviation: Tensor = gradient.flatten(1).norm(dim=1) - 1
    return deviation.square().mean()


class Critic(nn.Module):
    """Scores grids of tokens ``[B, N, d]`` for coming from the substitute, ``[B]``."""

    def __init__(self, token_width: int, cells: int, width: int = 96) -> None:
        super().__init__()
        self.tokens = nn.Sequential(nn.Linear(token_width, width), nn.LeakyReLU(0.2))
        self.place = nn.Parameter(torch.randn(cells, width) * 0.1)
        self.mixed = nn.Sequential(nn.Linear(width, width), nn.LeakyReLU(0.2))
        self.head = nn.Sequential(
            nn.Linear(2 * width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores."""
        read = self.mixed(self.tokens(tokens) + self.place)
        scores: Tensor = self.head(torch.cat([read.mean(dim=1), read.amax(dim=1)], dim=-1))
        return scores.squeeze(-1)


class Aligner(nn.Module):
    """Moves the public client's tokens towards the victim's; starts as the identity.

    The substitute client is the public base model followed by this aligner. The attacker lacks the
    victim's adapter, but holds the base model.
    """

    def __init__(self, token_width: int, width: int = 128) -> None:
        super().__init__()
        self.linear = nn.Linear(token_width, token_width)
        self.residual = nn.Sequential(
            nn.Linear(token_width, width), nn.GELU(), nn.Linear(width, token_width)
        )
        with torch.no_grad():
            self.linear.weight.copy_(torch.eye(token_width))
            self.linear.bias.zero_()
            for parameter in self.residual[-1].parameters():
                parameter.zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return moved tokens ``[..., d]``."""
        moved: Tensor = self.linear(tokens) + self.residual(tokens)
        return moved


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Training settings of the alignment.

    Args:
        steps: Steps of aligner and critic.
        batch_size: Pictures per step, from each side.
        weight: Share ``a`` of MK-MMD in the loss, the rest is the critic's (0.8 as published).
        learning_rate: Learning rate of the aligner.
        critic_rate: Learning rate of the critic.
        penalty: Weight of the gradient penalty.
        task: Weight of the server's loss, for a simulator.
    """

    steps: int = 300
    batch_size: int = 64
    weight: float = 0.8
    learning_rate: float = 3e-4
    critic_rate: float = 3e-4
    penalty: float = 10.0
    task: float = 1.0


def align(
    public: TokenGrid,
    private: TokenGrid,
    settings: Alignment,
    seed: int,
    *,
    task: Callable[[TokenGrid, Tensor], Tensor] | None = None,
    deadline: float = float("inf"),
) -> Aligner:
    """Train the aligner on unpaired tokens.

    For each random pair of pictures, only the cells that both have are used, so that the critic
    judges tokens and not which patches a policy kept.

    Args:
        public: Tokens of auxiliary pictures through the public client.
        private: Tokens that crossed from the victim.
        settings: How to train.
        seed: Seed of weights and batches.
        task: A further loss of moved tokens and their rows in ``public``; see `simulator`.
        deadline: `time.monotonic` at which training stops.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        width = public.tokens.shape[-1]
        aligner, critic = Aligner(width), Critic(width, public.tokens.shape[1])
        mean = private.tokens[private.present].mean(dim=0)
        scale = private.tokens[private.present].std(dim=0).clamp(min=1e-6)
        ours = Adam(aligner.parameters(), settings.learning_rate)
        theirs = Adam(critic.parameters(), settings.critic_rate)
        for _ in range(settings.steps):
            if time.monotonic() > deadline:
                break
            rows, others = (
                torch.randint(len(grid), (settings.batch_size,)) for grid in (public, private)
            )
            known, seen = public[rows], private[others]
            shared = (known.present & seen.present).unsqueeze(-1)
            real = (seen.tokens - mean) / scale * shared
            tokens = aligner(known.tokens)
            moved = (tokens - mean) / scale * shared
            _critic_step(critic, theirs, real, moved.detach(), settings.penalty)
            loss = (1 - settings.weight) * critic(moved).mean()
            loss = loss + settings.weight * mk_mmd(real.flatten(1), moved.flatten(1))
            if task is not None:
                loss = loss + settings.task * task(TokenGrid(tokens, known.present), rows)
            ours.zero_grad()
            # no gradient may reach the weights of a passive server
            torch.autograd.backward(loss, inputs=list(aligner.parameters()))
            ours.step()
    return aligner


def _critic_step(
    critic: Critic, optimizer: Adam, real: Tensor, moved: Tensor, penalty: float
) -> None:
    """Let the critic score the victim's tokens low and the substitute's high (equation 5)."""
    mix = torch.rand(len(real))
    loss = critic(real).mean() - critic(moved).mean()
    loss = loss + penalty * gradient_penalty(critic, real, moved, mix)
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()
