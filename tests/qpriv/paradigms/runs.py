"""Short fine-tunes of a random model under any paradigm, and what is left of them."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from qpriv.datasets.sample import VQASample
from qpriv.models.batch import VQABatch
from qpriv.models.features import NOTHING, Needs, VisualFeatures
from qpriv.models.llava.loading import DType
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms import Paradigm, Run
from qpriv.paradigms.centralized import StepReport
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.pruning.baselines import RandomPruning
from qpriv.pruning.policy import PruningPolicy
from tests.tiny_models import random_backbone, random_samples

BATCH = 4
# the clip is small enough to be at work in every step
RECIPE = LoraRecipe(rank=4, alpha=8, dropout=0.1, learning_rate=1e-2, clip=0.05, warmup=0.1)


class Remembering:
    """The frozen encoders, asked once for every batch."""

    def __init__(self, model: VisionLanguageModel) -> None:
        self.model = model
        self.known: dict[tuple[str, ...], VisualFeatures] = {}

    def __call__(self, batch: VQABatch, needs: Needs = NOTHING) -> VisualFeatures:
        keys = tuple(sample.key for sample in batch.samples)
        if keys not in self.known:
            self.known[keys] = self.model.encode(batch, needs)
        return self.known[keys]


@dataclass
class Trained:
    """What a fine-tune left: report, loss and gradients of every step, and the last weights."""

    model: VisionLanguageModel
    paradigm: Paradigm
    reports: list[StepReport | None] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)


def base_name(name: str) -> str:
    """Return a weight's name without the adapter it is in."""
    *path, _, weight = name.split(".")
    return ".".join((*path, weight))


def trained_weights(model: VisionLanguageModel) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}


def begin(
    paradigm: Paradigm,
    recipe: LoraRecipe = RECIPE,
    samples: list[VQASample] | None = None,
    dtype: DType = "float32",
    policy: PruningPolicy | None = None,
) -> Run:
    model = VisionLanguageModel.from_pretrained(str(random_backbone()), dtype=dtype)
    paradigm.add_adapters(model, recipe, seed=5)
    paradigm.share_out(samples or random_samples(BATCH), seed=5)
    model.train()
    return Run(model, policy or RandomPruning(0.4), Remembering(model), recipe, seed=5)


def train(
    paradigm: Paradigm,
    steps: int,
    recipe: LoraRecipe = RECIPE,
    samples: list[VQASample] | None = None,
    policy: PruningPolicy | None = None,
) -> Trained:
    """Fine-tune on the same batch again and again, which is cheap and hides no difference."""
    run = begin(paradigm, recipe, samples, policy=policy)
    model = run.model
    optimizer = paradigm.optimizer(model, recipe)
    scheduler = recipe.scheduler(optimizer, steps)
    batch = model.preprocessor(samples or random_samples(BATCH))
    result = Trained(model, paradigm)
    for number in range(steps):
        torch.manual_seed(number)
        last = number == steps - 1
        report = paradigm.step(run, batch, optimizer, scheduler, last=last)
        result.reports.append(report)
        result.losses += [] if report is None else [report.loss]
        result.gradients.append(
            {
                base_name(name): parameter.grad.clone()
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }
        )
    result.weights = trained_weights(model)
    return result


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def by_base_name(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {base_name(name): value for name, value in weights.items()}
