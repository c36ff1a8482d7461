"""Centralised training, and the training step that every paradigm builds on."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from qpriv.datasets.sample import VQASample
from qpriv.datasets.sampler import EpochSampler, ResumableLoader
from qpriv.models.batch import VQABatch
from qpriv.models.features import NOTHING, Needs, VisualFeatures
from qpriv.models.llava.prepared import PreparedInputs
from qpriv.models.llava.vision_language import LanguageOutput, VisionLanguageModel
from qpriv.pruning.policy import PruningPolicy

from .adapter import fresh_adapter
from .clipping import scale_gradients, square_norm
from .recipe import LoraRecipe, require
from .scaling import Scaling, scaling_for
from .seeding import preserved_random, seed_step


class Encode(Protocol):
    """The frozen encoders: `VisionLanguageModel.encode`, or a cache around it."""

    def __call__(self, batch: VQABatch, needs: Needs = NOTHING) -> VisualFeatures:
        """Return the features of a batch, including the extra features a policy needs."""
        ...


@dataclass(frozen=True)
class StepReport:
    """Loss and counts of one optimiser step.

    Args:
        loss: Mean cross-entropy over the batch's answer tokens, in nats.
        tokens: Number of those answer tokens.
        kept: Visual tokens that cross at the first cut, over all samples.
        samples: Number of samples.
    """

    loss: float
    tokens: int
    kept: int
    samples: int


def accumulate_gradients(
    model: VisionLanguageModel,
    batch: VQABatch,
    policy: PruningPolicy,
    encode: Encode,
    micro_batch_size: int | None = None,
    backward: Callable[[Tensor], None] = torch.Tensor.backward,
    normaliser: float | None = None,
    observe: Callable[[LanguageOutput, float], None] | None = None,
    cut: int = 0,
) -> StepReport:
    """Add the gradient of a batch's loss to the parameters, one micro-batch at a time.

    The loss is normalised by the answer tokens of the whole batch, so that the gradient does
    not depend on the micro-batches.

    Args:
        model: The model.
        batch: The batch to learn from.
        policy: The pruning policy.
        encode: The frozen encoders.
        micro_batch_size: Samples per pass; None is the whole batch.
        backward: Runs the backward pass of a loss.
        normaliser: Divisor of the sum of token losses; None is the batch's answer tokens.
        observe: Called before each backward pass with the micro-batch's output and its share of
            the samples.
        cut: Layer before which visual tokens are counted.
    """
    tokens = answer_tokens(batch)
    loss, kept = 0.0, 0
    for part in passes(batch, micro_batch_size):
        output: LanguageOutput = model(prepared(model, part.batch, policy, encode))
        if observe is not None:
            observe(output, part.share)
        own = answer_tokens(part.batch)
        part_loss = output.loss * (own / (tokens if normaliser is None else normaliser))
        backward(part_loss)
        loss += float(part_loss.detach())
        kept += int(output.at(cut).visual_counts.sum())
    return StepReport(loss, tokens, kept, len(batch))


def step(
    model: VisionLanguageModel,
    batch: VQABatch,
    policy: PruningPolicy,
    encode: Encode,
    recipe: LoraRecipe,
    optimizer: Optimizer,
    scheduler: LRScheduler,
    scaling: Scaling,
    normaliser: float | None = None,
    cut: int = 0,
) -> StepReport:
    """Run one optimiser step on one batch."""
    optimizer.zero_grad()
    report = accumulate_gradients(
        model, batch, policy, encode, recipe.micro_batch_size, scaling.backward, normaliser, cut=cut
    )
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    scale_gradients(trained, square_norm(trained, scaling.scale), recipe.clip)
    scaling.step(optimizer)
    scheduler.step()
    return report


def fine_tune(
    model: VisionLanguageModel,
    samples: Sequence[VQASample],
    policy: PruningPolicy,
    recipe: LoraRecipe,
    seed: int,
    on_step: Callable[[int], None] | None = None,
    encode: Encode | None = None,
    steps: int | None = None,
) -> dict[str, Tensor]:
    """Train a fresh LoRA adapter, exactly as a `Trainer` fits a `VQAModule` of this recipe.

    Initial adapter, batch order, random numbers, loss, schedule and dtypes are the same, so a
    shadow model differs from its victim only in data and seed. Under the autocast of the victim's
    trainer, the shadow model computes in the victim's precision. The model and the global random
    state are restored afterwards; use ``on_step`` to see the trained model.

    Args:
        model: The model, with or without its own adapter.
        samples: Training samples.
        policy: The pruning policy in training.
        recipe: The recipe.
        seed: Seed of the adapter, the batch order and the dropout.
        on_step: Called with the number of finished optimiser steps, before the first step and
            after every step.
        encode: The encoders, or a cache; None uses the model's own.
        steps: Optimiser steps after which training ends, below or above the recipe's plan; None
            takes the recipe's.

    Returns:
        The trained adapter, on the CPU.

    Raises:
        ConfigError: If the recipe plans no end and ``steps`` gives none.
    """
    encode = encode or model.encode
    sampler = EpochSampler(samples, seed=seed)
    loader = ResumableLoader(
        _Samples(samples),
        batch_size=recipe.batch_size,
        sampler=sampler,
        collate=model.preprocessor,
    )
    planned = recipe.steps(len(samples))
    end = planned if steps is None else steps
    require(math.isfinite(end), "epochs", recipe.epochs, "say after how many steps to stop")
    with fresh_adapter(model, recipe, seed) as adapter, preserved_random(), torch.enable_grad():
        model.train()
        optimizer = recipe.optimizer(model.parameters())
        scheduler = recipe.scheduler(optimizer, planned)
        scaling = scaling_for(model.device)
        told = on_step or (lambda done: None)
        told(0)
        for epoch in range(math.ceil(end / len(loader))):
            sampler.set_epoch(epoch)
            left = int(end) - epoch * len(loader)
            for number, batch in enumerate(islice(loader, left)):
                seed_step(seed, epoch, number)
                batch = batch.to(model.device)
                step(model, batch, policy, encode, recipe, optimizer, scheduler, scaling)
                told(epoch * len(loader) + number + 1)
        return model.adapter_state(adapter)


def answer_tokens(batch: VQABatch) -> int:
    """Return the number of tokens that the loss of a batch averages over."""
    return int((batch.labels != -100).sum())


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass of a step.

    Args:
        number: Number of the pass in the step, from 0.
        batch: Samples of the pass.
        share: Share of the step's samples, in (0, 1].
    """

    number: int
    batch: VQABatch
    share: float


def passes(batch: VQABatch, size: int | None) -> list[Pass]:
    """Return the passes of a step, each of at most ``size`` samples; None is a single pass."""
    if size is None or size >= len(batch):
        return [Pass(0, batch, 1.0)]
    parts = [batch[start : start + size] for start in range(0, len(batch), size)]
    return [Pass(number, part, len(part) / len(batch)) for number, part in enumerate(parts)]


def prepared(
    model: VisionLanguageModel, batch: VQABatch, policy: PruningPolicy, encode: Encode
) -> PreparedInputs:
    """Return a batch as decoder inputs: encoded, pruned and projected."""
    features = encode(batch, policy.needs)
    return model.prepare(batch, features, policy.decide(features, batch.samples))


class _Samples(Dataset[VQASample]):
    """A sequence as a map-style data set."""

    def __init__(self, samples: Sequence[VQASample]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> VQASample:
        return self.samples[index]
