"""What a party that attacks by gradients gets to see: a client's update, or what returns at a cut."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

import torch
from peft import PeftModel
from torch import Tensor

from qpriv.datasets.sample import VQASample
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.base import Run
from qpriv.paradigms.centralized import Encode, accumulate_gradients
from qpriv.paradigms.federated import Federated
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.pruning.policy import PruningPolicy
from qpriv.split import Channel, RandomKey, StageContext, Stages, Transcript

from ..observation import public_client
from .inversion import gradient_norm

HEAD = "lm_head.weight"
"""How the name of the LM head's weight ends in an update that trains it."""


@dataclass(frozen=True)
class SharedGradient:
    """A client's gradient, as a server works it out from the weights before and after.

    Args:
        values: Gradient by name of the weight.
        rounding: Standard deviation of the rounding error of each, from the stored weights.
    """

    values: dict[str, Tensor]
    rounding: dict[str, float]

    @property
    def norm(self) -> float:
        """Return the L2 norm over all weights."""
        return gradient_norm(list(self.values.values()))

    def split_head(self) -> tuple["SharedGradient", "SharedGradient"]:
        """Return the adapter's part, and the LM head's under the name `HEAD`."""
        names = {name: name.endswith(HEAD) for name in self.values}
        adapter = {name: self.values[name] for name, is_head in names.items() if not is_head}
        head = {HEAD: self.values[name] for name, is_head in names.items() if is_head}
        levels = {HEAD: self.rounding[name] for name, is_head in names.items() if is_head}
        return (
            SharedGradient(adapter, {name: self.rounding[name] for name in adapter}),
            SharedGradient(head, levels),
        )

    def flat(self, part: str = "") -> Tensor:
        """Return the values of the weights in whose name ``part`` occurs, in one row ``[P]``."""
        chosen = [value for name, value in self.values.items() if part in name]
        return torch.cat([value.flatten() for value in chosen])


def share_update(
    model: VisionLanguageModel,
    samples: Sequence[VQASample],
    policy: PruningPolicy,
    encode: Encode,
    recipe: LoraRecipe,
    *,
    train_head: bool = False,
    seed: int = 0,
) -> Transcript:
    """Let one client take one step of SGD on some samples; return what the server sees of it.

    The step is not clipped: clipping scales an update as a whole, which the attacks do not
    notice, and hides its norm. The model's weights are afterwards what they were.

    Args:
        model: The model with the adapter that the server sent.
        samples: The client's batch.
        policy: The client's pruning policy.
        encode: The frozen encoders.
        recipe: How adapters are trained.
        train_head: Train the LM head as well.
        seed: Seed of the step's dropout.
    """
    unclipped = replace(recipe, clip=math.inf)
    client = Federated(num_clients=1, local_steps=1, local_optimizer="sgd")
    with differentiable(model, head=train_head):
        model.train()
        run = Run(model, policy, encode, unclipped, seed)
        batch = model.preprocessor(samples).to(model.device)
        return client.train_round(run, [batch], [recipe.learning_rate], store=True).transcript


def read_update(transcript: Transcript, learning_rate: float) -> SharedGradient:
    """Return the gradient of the one client and step of SGD in a transcript of a round."""
    before, after = transcript.weights()
    values = {n: (before[n].double() - after[n].double()) / learning_rate for n in before}
    rounding = {
        name: float(after[name].double().square().mean().sqrt())
        * torch.finfo(after[name].dtype).eps
        / math.sqrt(12)
        / learning_rate
        for name in before
    }
    return SharedGradient(values, rounding)


def share_cuts(
    model: VisionLanguageModel,
    samples: Sequence[VQASample],
    policy: PruningPolicy,
    encode: Encode,
    channel: Channel,
    key: RandomKey | None = None,
) -> Transcript:
    """Return what crosses the cuts in one training step: activations, and gradients back.

    No weight is changed, and the gradients of the weights are thrown away.

    Args:
        model: The model with the adapters of client and server.
        samples: The client's batch.
        policy: The client's pruning policy.
        encode: The frozen encoders.
        channel: What it crosses.
        key: What a defence's random numbers depend on.
    """
    with differentiable(model), channel.record(model, gradients=True, key=key) as transcript:
        model.train()
        batch = model.preprocessor(samples).to(model.device)
        accumulate_gradients(model, batch, policy, encode)
    return transcript


def simulate_update(
    model: VisionLanguageModel,
    samples: Sequence[VQASample],
    policy: PruningPolicy,
    encode: Encode,
    part: str = "",
) -> list[Tensor]:
    """Return the gradient that a client with these samples would have, without dropout.

    In the order of the values of the `SharedGradient` of a client that trains the adapter alone.

    Args:
        model: The model with the adapter that the server sent.
        samples: The client's batch.
        policy: The client's pruning policy.
        encode: The frozen encoders.
        part: Only weights in whose name this occurs; the backward pass ends at the first of them.
    """
    with differentiable(model):
        model.eval()
        for name, value in model.named_parameters():
            value.requires_grad_(value.requires_grad and part in name)
        batch = model.preprocessor(samples).to(model.device)
        accumulate_gradients(model, batch, policy, encode)
        trained = [value for value in model.parameters() if value.requires_grad]
        return [torch.zeros_like(value) if value.grad is None else value.grad for value in trained]


def simulate_cut(
    model: VisionLanguageModel,
    samples: Sequence[VQASample],
    policy: PruningPolicy,
    encode: Encode,
    channel: Channel,
    cut: int,
    key: RandomKey | None = None,
) -> Transcript:
    """Return what would cross a cut if client and server held the public base model."""

    def as_leaf(rows: Tensor, context: StageContext) -> Tensor:
        # no layer of the base model trains: without this no gradient would come back
        return rows.detach().requires_grad_()

    tapped = channel.tapped(cut, Stages(encode=as_leaf))
    with (
        differentiable(model),
        public_client(model),
        tapped.record(model, gradients=True, key=key) as transcript,
    ):
        model.eval()
        batch = model.preprocessor(samples).to(model.device)
        accumulate_gradients(model, batch, policy, encode)
    return transcript


@contextmanager
def differentiable(model: VisionLanguageModel, *, head: bool = False) -> Iterator[None]:
    """Let the active adapters have gradients, and the LM head too; all flags and modes come back."""
    flags = [(value, value.requires_grad, value.grad) for value in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    active = tuple(f".{name}.weight" for name in cast(PeftModel, model.llava).active_adapters)
    try:
        for name, value in model.named_parameters():
            value.requires_grad_(".lora_" in name and name.endswith(active))
            value.grad = None
        for value in model.lm_head.parameters():
            value.requires_grad_(head)
        yield
    finally:
        for value, trains, gradient in flags:
            value.requires_grad_(trains)
            value.grad = gradient
        for module, mode in modes:
            module.training = mode
