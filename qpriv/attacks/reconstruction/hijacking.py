"""The training of a client whose server hijacks it: FSHA answers every batch.

The client trains an adapter of its own beside the victim's, with the victim's recipe and data
(except the number of steps and, if set, a constant learning rate). At the cut it gets the
attacker's gradient back. The server's layers continue to learn the task from what crosses, so
answers stay as good as the hijacked features allow: the stealth metrics are those of a careful
attacker.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from qpriv.datasets.sample import VQASample
from qpriv.paradigms.adapter import fresh_adapter
from qpriv.paradigms.centralized import prepared
from qpriv.paradigms.clipping import square_norm
from qpriv.paradigms.own_gradient import OwnGradient, clip_parties
from qpriv.paradigms.seeding import preserved_random
from qpriv.split import RandomKey, StageContext, Stages, Transcript

from ..token_grid import to_grid
from ..victim import Victim
from .detector import SplitGuard, with_random_answers
from .fsha import Fsha, PublicScenes


class HijackingServer:
    """Replaces the server's gradient at the cut by the attacker's.

    It reads only the transcript. It scales its gradient to the norm of the honest one, so that
    neither clipping nor the norm reveals the attack. Text tokens get no gradient.

    Args:
        attack: The attacker.
        public: The attacker's own scenes.
        num_patches: Number of patches ``N``.
        cut: The cut it returns gradients at.
        seed: Seed of the draws of scenes.
        control: Let the honest gradient cross and learn all the same.
    """

    def __init__(
        self,
        attack: Fsha,
        public: PublicScenes,
        num_patches: int,
        cut: int,
        seed: int = 0,
        *,
        control: bool = False,
    ) -> None:
        self.attack, self.public = attack, public
        self.num_patches, self.cut, self.seed, self.control = num_patches, cut, seed, control
        self.transcript = Transcript()
        self.told: Sequence[Tensor] | None = None
        """Which patches the client says it kept; None where it says nothing."""

    def hijack(self, gradient: Tensor, context: StageContext) -> Tensor:
        """Return what crosses in place of an honest gradient ``[sum T_i, d]``; a `Stage`."""
        message = self.transcript.select(self.cut)[-1]
        tokens = to_grid(self.transcript.image_rows(self.cut), self.told, self.num_patches)
        drawn = torch.Generator().manual_seed(self.seed + self.attack.steps_done)
        chosen = torch.randint(len(self.public), (len(tokens),), generator=drawn)
        self.attack.prepare(tokens, self.public)
        with torch.enable_grad():  # hooks of a backward pass run without
            crafted = self.attack.step(tokens, self.public[chosen])
        if self.control:
            return gradient
        returned = torch.zeros_like(gradient)
        rows = context.split(returned)
        for number, (own, (start, stop)) in enumerate(zip(rows, message.spans, strict=True)):
            # tokens lie on the grid in the order they came
            own[start:stop] = crafted[number][tokens.present[number]].to(gradient)
        scale: Tensor = gradient.norm() / returned.norm().clamp(min=1e-12)
        return returned * scale


class HijackedClient:
    """A client in training against a hijacking server.

    Args:
        victim: Whose model, policy and recipe it shares.
        adapter: The adapter it trains; the only active one.
        server: The hijacking server.
        learning_rate: Its constant learning rate; None is the recipe's peak.
        batch_size: Samples of one step.
        guard: The client's detector, or None.
        seed: Seed of the order of the samples.
    """

    def __init__(
        self,
        victim: Victim,
        adapter: str,
        server: HijackingServer,
        *,
        learning_rate: float | None = None,
        batch_size: int = 16,
        guard: SplitGuard | None = None,
        seed: int = 0,
    ) -> None:
        self.victim, self.adapter, self.server = victim, adapter, server
        self.batch_size, self.guard, self.seed = batch_size, guard, seed
        self.trained = [p for p in victim.model.parameters() if p.requires_grad]
        recipe = victim.recipe
        rate = recipe.learning_rate if learning_rate is None else learning_rate
        self.optimizer = replace(recipe, learning_rate=rate).optimizer(self.trained)

    def train(
        self,
        samples: Sequence[VQASample],
        steps: int,
        *,
        deadline: float = float("inf"),
        watch: Callable[[int, int], None] | None = None,
    ) -> None:
        """Take some more steps.

        Args:
            samples: The client's own training set.
            steps: Number of steps, fake batches of a detector included.
            deadline: `time.monotonic` at which it stops, whatever is left to do.
            watch: Called after each step with the number of steps done, and of all.
        """
        self.victim.model.train()
        for step in range(steps):
            if time.monotonic() > deadline:
                break
            generator = torch.Generator().manual_seed(self.seed + self.server.attack.steps_done)
            rows = torch.randint(len(samples), (self.batch_size,), generator=generator)
            batch = [samples[row] for row in rows.tolist()]
            fake = self.guard is not None and self.guard.sends_fake()
            self._step(with_random_answers(batch, generator) if fake else batch, fake)
            if watch is not None:
                watch(step + 1, steps)
        self.victim.model.eval()

    def state_dict(self) -> dict[str, Any]:
        """Return client, attacker and detector as they are, to go on with after the next epoch."""
        return {
            "adapter": self.victim.model.adapter_state(self.adapter),
            "optimizer": self.optimizer.state_dict(),
            "attack": self.server.attack.state_dict(),
            "guard": None if self.guard is None else self.guard.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what was carried along."""
        self.victim.model.load_adapter_state(state["adapter"], self.adapter)
        self.optimizer.load_state_dict(state["optimizer"])
        self.server.attack.load_state_dict(state["attack"])
        if self.guard is not None and state["guard"] is not None:
            self.guard.load_state_dict(state["guard"])

    def _step(self, samples: Sequence[VQASample], fake: bool) -> None:
        victim, server = self.victim, self.server
        batch = victim.model.preprocessor(samples).to(victim.model.device)
        inputs = prepared(victim.model, batch, victim.policy, victim.encode)
        server.told = inputs.patches(server.cut) if server.attack.knows_positions else None
        self.optimizer.zero_grad()
        hijacked = victim.channel.tapped(server.cut, Stages(encode_gradient=server.hijack))
        key = RandomKey(self.seed, server.attack.steps_done)
        own = OwnGradient(self.trained, victim.recipe.clip)
        with hijacked.open(
            victim.model, gradients=True, store=True, key=key, mode="train", terms=True
        ) as opened:
            server.transcript = opened.transcript
            own.watch(opened)
            loss = victim.model(inputs).loss
            own.take(share=1.0)
            torch.autograd.backward(loss)
        if self.guard is not None:
            self.guard.observe(self._own_gradient(), fake=fake)
        if not fake:
            total = square_norm(self.trained)
            clip_parties([self.trained], total, victim.recipe.clip, [own])
            self.optimizer.step()

    def _own_gradient(self) -> Tensor:
        """Return the gradient of the weights before the cut, in one row."""
        layers: nn.ModuleList = self.victim.model.decoder_layers
        gradients = [
            parameter.grad.flatten()
            for layer in list(layers)[: self.server.cut]
            for parameter in layer.parameters()
            if parameter.grad is not None
        ]
        return torch.cat(gradients) if gradients else torch.zeros(1)


@contextmanager
def hijacked_client(
    victim: Victim,
    server: HijackingServer,
    *,
    learning_rate: float | None = None,
    batch_size: int = 16,
    guard: SplitGuard | None = None,
    seed: int = 0,
) -> Iterator[HijackedClient]:
    """Give the victim's model a client's fresh adapter, to be trained against a hijacker.

    The victim's own adapter rests meanwhile; afterwards model and random numbers are what they
    were.
    """
    with fresh_adapter(victim.model, victim.recipe, seed) as adapter, preserved_random():
        torch.manual_seed(seed)
        with torch.enable_grad():
            yield HijackedClient(
                victim,
                adapter,
                server,
                learning_rate=learning_rate,
                batch_size=batch_size,
                guard=guard,
                seed=seed,
            )
