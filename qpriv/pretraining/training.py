"""The one training loop of the embedded models: seeded, resumable, with progress."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor, nn
from tqdm import tqdm

from qpriv.io import atomic_open

Loss = Callable[[Generator], Tensor]
"""Draws a batch with the given randomness and returns its loss."""


class Stateful(Protocol):
    """What a checkpoint holds the state of."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Take the state."""
        ...


def train(
    name: str,
    modules: nn.ModuleDict,
    loss: Loss,
    *,
    steps: int,
    seed: int,
    checkpoint: Path,
    learning_rate: float = 1.5e-3,
    weight_decay: float = 0.05,
    save_every: int = 100,
) -> None:
    """Train modules in place with AdamW, from a checkpoint where one is left.

    The rate rises over 50 steps, stays, and falls linearly to zero over the last 40 per cent.
    Step ``i`` draws its batch from ``(seed, i)``, so an interrupted run ends as one in a piece.

    Args:
        name: Shown beside the progress.
        modules: What is trained, auxiliary heads included.
        loss: Draws a batch and returns its loss.
        steps: Number of steps.
        seed: Seed of the batches.
        checkpoint: Where the state is kept between; the file is replaced as a whole.
        learning_rate: Rate at its plateau.
        weight_decay: Decay of AdamW.
        save_every: Steps between checkpoints.
    """
    optimiser = torch.optim.AdamW(
        modules.parameters(), learning_rate, betas=(0.9, 0.98), weight_decay=weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, steps))
    state: dict[str, Stateful] = {"modules": modules, "optimiser": optimiser, "schedule": schedule}
    start = _resume(checkpoint, state)
    progress = tqdm(range(start, steps), desc=name, initial=start, total=steps)
    for step in progress:
        optimiser.zero_grad(set_to_none=True)
        value = loss(np.random.default_rng([seed, step]))
        value.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(modules.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        progress.set_postfix(loss=f"{value.item():.3f}", refresh=False)
        if (step + 1) % save_every == 0 or step + 1 == steps:
            _save(checkpoint, state, step + 1)


def _rate(step: int, steps: int) -> float:
    warm_up, decay = min(50, max(steps // 10, 1)), 0.4 * steps
    return min((step + 1) / warm_up, 1.0, max((steps - step) / decay, 0.0))


def _resume(checkpoint: Path, state: Mapping[str, Stateful]) -> int:
    if not checkpoint.exists():
        return 0
    saved = torch.load(checkpoint, weights_only=True)
    for part, holder in state.items():
        holder.load_state_dict(saved[part])
    return int(saved["step"])


def _save(checkpoint: Path, state: Mapping[str, Stateful], step: int) -> None:
    with atomic_open(checkpoint) as file:
        torch.save({**{k: v.state_dict() for k, v in state.items()}, "step": step}, file)
