"""The grounded target of the utility branch: which patches the answer really rests on.

The source trains its projections on the mask alone and leaves open what utility the mask is made
of. Made from a random scorer, they learn to imitate noise. Made from the gradient of the gold
answer, they learn where the model looks.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qpriv.models.batch import VQABatch
from qpriv.models.features import VisualFeatures
from qpriv.models.precision import widened

if TYPE_CHECKING:  # importing it takes seconds, and only whoever built a model gets here
    from qpriv.models.llava.vision_language import VisionLanguageModel


def saliency_rank(gradient: Tensor, inputs: Tensor) -> Tensor:
    """Return the rank of ``sum_d |gradient_d input_d|`` of every token, scaled to [0, 1].

    Each product is, to first order, the change of the output if that value were set to zero.
    Their absolute sum points better at what a question is about than the absolute value of
    their sum, in which values of both signs cancel (area under the curve .89 and .79 on the
    embedded model). Ranks take away the scale, which differs by orders of magnitude between
    questions. Of equal tokens the one with the lower index ranks lower.

    Args:
        gradient: Gradient of the gold answer's log-probability, ``[B, N, D]``.
        inputs: What it was taken at, ``[B, N, D]``.

    Returns:
        0 for the least, 1 for the most salient token of a row, ``[B, N]``.

    >>> saliency_rank(torch.tensor([[[1.0], [-3.0], [2.0]]]), torch.ones(1, 3, 1)).tolist()
    [[0.0, 1.0, 0.5]]
    """
    saliency = (widened(gradient) * widened(inputs)).abs().sum(dim=-1)
    order = saliency.argsort(dim=-1, stable=True)
    ranks = torch.empty_like(saliency)
    steps = torch.linspace(0, 1, saliency.shape[-1], dtype=ranks.dtype, device=ranks.device)
    return ranks.scatter_(-1, order, steps.expand_as(order))


def grounded_utility(
    model: "VisionLanguageModel", batch: VQABatch, features: VisualFeatures
) -> Tensor:
    """Return the saliency rank of every patch for the gold answer, ``[B, N]`` in [0, 1].

    Needs answers: for training the student, on its training split only. No weight's ``grad`` is
    touched.

    Args:
        model: The model whose gradient is taken, with nothing pruned.
        batch: Questions with their gold answers.
        features: What the frozen encoders see of them.
    """
    with torch.enable_grad():
        patches = features.patches.detach().requires_grad_()
        loss = model(batch, replace(features, patches=patches)).loss
        # the mean over the batch scales each sample's gradient by one number, which ranks ignore
        (gradient,) = torch.autograd.grad(loss, patches)
    return saliency_rank(gradient, patches.detach())
