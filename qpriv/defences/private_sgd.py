"""DP-SGD on LoRA: fine-tuning a document model under differential privacy of whole documents.

Abadi et al. 2016 (arXiv 1607.00133), algorithm 1: documents are drawn at random at each step, the
gradient of each is clipped, and Gaussian noise hides what any single one adds. A document is one
unit with all its questions and however often it stands in the training set, so that repetition
buys it no larger share. The guarantee is about adding or removing one document.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from opacus.accountants.utils import get_noise_multiplier
from torch import Generator, Tensor, nn

from qpriv.datasets.sample import VQASample
from qpriv.models.documents.base import DocumentModel
from qpriv.models.documents.batch import PageQuestions, PageReader, by_page
from qpriv.paradigms.documents import DocumentRecipe, batch_loss, step_generator
from qpriv.paradigms.recipe import require, warmed_up

Document = tuple[PageQuestions, ...]
"""The pages of one document with all questions about them."""


@dataclass(frozen=True, kw_only=True)
class PrivacyBudget:
    """How much the trained adapters may tell about one document.

    Args:
        epsilon: Largest epsilon.
        delta: Largest delta; below one over the number of documents, or a document in full may
            be published within it.
        clip: Largest gradient norm of a document.

    Raises:
        ConfigError: If a value is out of its range.
    """

    epsilon: float = 8.0
    delta: float = 1e-3
    clip: float = 1.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("epsilon", "clip"):
            require(getattr(self, name) > 0, name, getattr(self, name), "choose more than 0")
        require(0 < self.delta < 1, "delta", self.delta, "choose above 0 and below 1")

    def noise(self, share: float, steps: int) -> float:
        """Return the standard deviation of the noise over ``clip`` that keeps the budget.

        By the accountant of Gopi et al. 2021 (arXiv 2106.02848), as Opacus implements it.

        Args:
            share: Probability of each document to be drawn at a step.
            steps: Number of steps.
        """
        return float(
            get_noise_multiplier(
                target_epsilon=self.epsilon,
                target_delta=self.delta,
                sample_rate=share,
                steps=steps,
                accountant="prv",
            )
        )


@dataclass(frozen=True)
class PrivatelyTuned:
    """How a private fine-tuning went.

    Args:
        train_loss: Mean loss of the documents drawn in each epoch in which there were some. It
            has no noise: a measurement of ours, which the guarantee does not cover.
        noise: Standard deviation of the noise over the clipping norm.
        steps: Number of steps.
    """

    train_loss: tuple[float, ...]
    noise: float
    steps: int


def by_document(samples: Sequence[VQASample]) -> list[Document]:
    """Return samples grouped by document, each question once."""
    documents: dict[str, dict[str, VQASample]] = {}
    for sample in samples:
        documents.setdefault(sample.group_id, {})[sample.key] = sample
    return [tuple(by_page(list(asked.values()))) for asked in documents.values()]


def fine_tune_privately(
    model: DocumentModel,
    documents: Sequence[Document],
    recipe: DocumentRecipe,
    budget: PrivacyBudget,
    seed: int,
) -> PrivatelyTuned:
    """Train the adapters of a model in place, with noise that keeps the budget.

    The recipe gives the optimiser, the schedule, the scan noise, the epochs and the expected
    number of documents a step (``batch_pages``). An epoch is as many steps as would show every
    document once on average. The noise comes from a seed, so that a run can be repeated: who
    publishes the adapters must keep the seed to himself.

    Args:
        model: The model, with adapters; what is not trained stays as it is.
        documents: The training set; its size counts as public.
        recipe: The recipe; its gradient clipping is replaced by the budget's.
        budget: The budget.
        seed: Seed of draw and noise.

    Raises:
        ConfigError: If delta is too large for so few documents, or the recipe stops early: that
            would choose an epoch by data that the accountant does not know of.
    """
    require(len(documents) > 0, "documents", 0, "give some")
    require(
        budget.delta < 1 / len(documents),
        "delta",
        budget.delta,
        f"choose less than 1 / {len(documents)}, one over the number of documents",
    )
    require(recipe.patience is None, "patience", recipe.patience, "train a fixed number of epochs")
    share = min(1.0, recipe.batch_pages / len(documents))
    per_epoch = math.ceil(1 / share)
    steps = per_epoch * recipe.epochs
    noise = budget.noise(share, steps)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters, recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    scheduler = warmed_up(optimizer, recipe.schedule, recipe.warmup, steps)
    reader = PageReader(model.page)
    model.eval()  # no dropout, no running statistics: only noisy sums of gradients leave the data
    losses: list[list[float]] = [[] for _ in range(recipe.epochs)]
    for step in range(steps):
        generator = step_generator(seed, step)
        drawn = torch.rand(len(documents), generator=generator, dtype=torch.float32) < share
        total = [torch.zeros_like(p) for p in parameters]
        for number in drawn.nonzero().flatten().tolist():
            batch = reader(documents[number])
            loss = batch_loss(model, batch, recipe.noise, generator)
            add_clipped(total, torch.autograd.grad(loss, parameters), budget.clip)
            losses[step // per_epoch].append(float(loss.detach()))
        _set_gradients(parameters, total, noise * budget.clip, share * len(documents), generator)
        optimizer.step()
        scheduler.step()
    means = tuple(sum(epoch) / len(epoch) for epoch in losses if epoch)
    return PrivatelyTuned(means, noise, steps)


def add_clipped(total: Sequence[Tensor], gradients: Sequence[Tensor], clip: float) -> None:
    """Add the gradients of one document to a sum, scaled down to a norm of at most ``clip``.

    >>> total = [torch.zeros(2)]
    >>> add_clipped(total, [torch.tensor([30.0, 40.0])], clip=1.0)
    >>> [round(value, 4) for value in total[0].tolist()]
    [0.6, 0.8]
    """
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    scale = torch.clamp(clip / norm, max=1.0)  # a norm of zero scales by one
    for sum_, gradient in zip(total, gradients, strict=True):
        sum_.add_(gradient * scale)


def _set_gradients(
    parameters: Sequence[nn.Parameter],
    total: Sequence[Tensor],
    deviation: float,
    expected: float,
    generator: Generator,
) -> None:
    """Set each gradient to the noisy sum over the expected number of documents.

    The number really drawn would tell about the documents; the expected one does not.
    """
    for parameter, sum_ in zip(parameters, total, strict=True):
        # drawn on the CPU: the same noise on every device
        noise = torch.randn(sum_.shape, generator=generator, dtype=torch.float32)
        noise = noise.to(sum_) * deviation
        parameter.grad = (sum_ + noise) / expected
