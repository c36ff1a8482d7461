"""Fine-tuning of document models, with one recipe for f, f_G and every defence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Generator, Tensor

from qpriv.datasets.documents.scan import ScanNoise
from qpriv.datasets.sampler import EpochSampler
from qpriv.models.documents.base import DocumentModel
from qpriv.models.documents.batch import DocumentBatch, PageQuestions, PageReader

from .recipe import Schedule, require, warmed_up


@dataclass(frozen=True, kw_only=True)
class DocumentRecipe:
    """The fine-tuning recipe of a document model.

    Args:
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Decoupled weight decay.
        schedule: How the learning rate falls after the warm-up.
        warmup: Share of all steps in which the learning rate rises.
        clip: Largest gradient norm.
        batch_pages: Pages per step, each with all its questions.
        epochs: Passes over the pages; the maximum if ``patience`` is set.
        patience: Epochs without a better validation loss after which training stops and restores
            the best weights; None trains all epochs and keeps the last weights.
        noise: Scan noise in training; None adds no noise.

    Raises:
        ConfigError: If a value is out of range.
    """

    learning_rate: float = 8e-4
    weight_decay: float = 0.01
    schedule: Schedule = "linear"
    warmup: float = 0.1
    clip: float = 1.0
    batch_pages: int = 16
    epochs: int = 24
    patience: int | None = None
    noise: ScanNoise | None = field(default_factory=ScanNoise)

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("learning_rate", "clip", "batch_pages", "epochs"):
            require(getattr(self, name) > 0, name, getattr(self, name), "choose more than 0")
        require(self.patience is None or self.patience > 0, "patience", self.patience, "or null")


@dataclass(frozen=True)
class FineTuned:
    """The outcome of a fine-tuning.

    Args:
        train_loss: Mean loss of each epoch.
        val_loss: Validation loss after each epoch; empty without validation pages.
        epoch: Epoch (from 0) of the model's final weights.
    """

    train_loss: tuple[float, ...]
    val_loss: tuple[float, ...]
    epoch: int


def batch_loss(
    model: DocumentModel,
    batch: DocumentBatch,
    noise: ScanNoise | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Return the mean loss over the answer tokens of a batch.

    Args:
        model: The model.
        batch: Pages and questions.
        noise: Scan noise; None adds no noise.
        generator: Draws the noise, and one of the accepted answers of each question; without a
            generator the first answer is used.
    """
    pages = model.scanned(batch.pages, noise, generator)
    encoded = model.encode(pages, batch.questions, batch.page_of)
    answers = [_one_of(sample.answers or (sample.answer,), generator) for sample in batch.samples]
    tokens = model.tokenise(batch.questions, answers)
    return model.loss(model.logits(encoded, tokens), tokens)


def _one_of(answers: Sequence[str], generator: Generator | None) -> str:
    if generator is None or len(answers) == 1:
        return answers[0]
    return answers[int(torch.randint(len(answers), (), generator=generator))]


def step_generator(seed: int, step: int) -> Generator:
    """Return the generator of one step, which is the same in a resumed run."""
    mixed = np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0]
    return Generator().manual_seed(int(mixed >> 1))


def fine_tune(
    model: DocumentModel,
    training: Sequence[PageQuestions],
    recipe: DocumentRecipe,
    seed: int,
    validation: Sequence[PageQuestions] = (),
    on_epoch_end: Callable[[int], None] | None = None,
) -> FineTuned:
    """Train a model in place.

    f and f_G differ only in ``training``: start, recipe, seed and stopping rule are the same.

    Args:
        model: The model; its weights are changed in place.
        training: Pages with their questions.
        recipe: The recipe.
        seed: Seed of the page order and of the noise.
        validation: Pages whose loss decides when to stop; required with ``patience``.
        on_epoch_end: Called with the epoch (from 0) after each epoch.

    Raises:
        ConfigError: If there is a patience but no validation page.
    """
    require(recipe.patience is None or len(validation) > 0, "patience", recipe.patience, "validate")
    reader = PageReader(model.page)
    sampler = EpochSampler(training, seed=seed)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad],
        recipe.learning_rate,
        weight_decay=recipe.weight_decay,
    )
    per_epoch = -(-len(training) // recipe.batch_pages)
    scheduler = warmed_up(optimizer, recipe.schedule, recipe.warmup, per_epoch * recipe.epochs)
    train_loss: list[float] = []
    val_loss: list[float] = []
    best = dict[str, Tensor]()
    for epoch in range(recipe.epochs):
        model.train()
        sampler.set_epoch(epoch)
        pages = [training[number] for number in sampler.order()]
        total = 0.0
        for number, at in enumerate(range(0, len(pages), recipe.batch_pages)):
            batch = reader(pages[at : at + recipe.batch_pages])
            noise = step_generator(seed, epoch * per_epoch + number)
            total += _step(model, batch, recipe, optimizer, noise)
            scheduler.step()
        train_loss.append(total / per_epoch)
        if validation:
            val_loss.append(validation_loss(model, validation, recipe.batch_pages, reader))
        if on_epoch_end:
            on_epoch_end(epoch)
        if recipe.patience is not None:
            if val_loss[-1] == min(val_loss):
                best = {n: p.detach().clone() for n, p in model.named_parameters()}
            elif epoch - val_loss.index(min(val_loss)) >= recipe.patience:
                break
    model.eval()
    if recipe.patience is None:
        return FineTuned(tuple(train_loss), tuple(val_loss), len(train_loss) - 1)
    _restore(model, best)
    return FineTuned(tuple(train_loss), tuple(val_loss), val_loss.index(min(val_loss)))


def _step(
    model: DocumentModel,
    batch: DocumentBatch,
    recipe: DocumentRecipe,
    optimizer: torch.optim.Optimizer,
    noise: Generator,
) -> float:
    """Take one optimiser step and return the loss of the batch."""
    loss = batch_loss(model, batch, recipe.noise, noise)
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, recipe.clip)
    optimizer.step()
    return float(loss.detach())


@torch.no_grad()
def validation_loss(
    model: DocumentModel,
    validation: Sequence[PageQuestions],
    batch_pages: int = 16,
    reader: PageReader | None = None,
) -> float:
    """Return the mean loss on clean pages at the model's resolution."""
    read = reader or PageReader(model.page)
    model.eval()
    losses, sizes = [], []
    for start in range(0, len(validation), batch_pages):
        batch = read(validation[start : start + batch_pages])
        losses.append(float(batch_loss(model, batch)))
        sizes.append(len(batch))
    return float(np.average(losses, weights=sizes))


@torch.no_grad()
def _restore(model: DocumentModel, state: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(state[name])
