"""The span test: which tokens a client trained on, from the gradient of its first layer's LoRA.

The gradient of a projection ``W x`` is a sum of products with the inputs ``x`` of all tokens, and
so its rows lie in their span (Petrov et al. 2024, DAGER, arXiv:2405.15586, theorem 5.1). LoRA
shows the gradient of ``A``, whose ``r`` rows are a sum of as many products. As long as the tokens
are fewer than rows and than the width of the layer, the rows span all of them: a token of the
vocabulary is in the batch if, and only if, its input lies in the span. So a rank ``r >= B T``
leaks, and pruning, which lowers ``B T``, can make a safe rank leak again. Query, key and value
read the same inputs: together they have ``3 r`` rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qpriv.models.llava.vision_language import VisionLanguageModel

from .label_recovery import numerical_rank
from .sources import SharedGradient

PROJECTIONS = ("q_proj", "k_proj", "v_proj")
"""Projections of a decoder layer that read the same inputs."""

NEAR = 0.1
"""Share of an input's length that may stick out of the span; what is absent sticks out by most."""


@dataclass(frozen=True)
class InputSpan:
    """The span of the inputs of one layer, as far as its gradients show it.

    Args:
        basis: Orthonormal rows ``[rank, d]``.
        rows: Rows of the gradients, the most inputs that they could tell.
    """

    basis: Tensor
    rows: int

    @property
    def rank(self) -> int:
        """Return the number of independent inputs that are seen."""
        return len(self.basis)

    @property
    def feasible(self) -> bool:
        """Return whether there are fewer inputs than rows and dimensions: else it tells nothing."""
        return 0 < self.rank < min(self.rows, self.basis.shape[1])

    def distances(self, inputs: Tensor) -> Tensor:
        """Return which share of each input's length sticks out, ``[n]`` in [0, 1].

        Args:
            inputs: Candidates ``[n, d]``.
        """
        inputs = inputs.to(self.basis)
        outside = inputs - inputs @ self.basis.T @ self.basis
        share: Tensor = outside.norm(dim=1) / inputs.norm(dim=1)
        return share

    def holds(self, inputs: Tensor) -> Tensor:
        """Return which candidates ``[n, d]`` are in the batch, ``[n]`` bool; none if infeasible."""
        return (self.distances(inputs) < NEAR) & self.feasible


def input_span(gradients: Sequence[Tensor], noise: Sequence[float] | None = None) -> InputSpan:
    """Return the span of the inputs that some projections share.

    >>> tokens = torch.eye(6)[:2]
    >>> span = input_span([torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]) @ tokens])
    >>> span.rank, span.feasible, span.holds(torch.eye(6)).tolist()
    (2, True, [True, True, False, False, False, False])

    Args:
        gradients: Gradient of each projection's weight, or of its LoRA's A, ``[rows, d]``.
        noise: Standard deviation of each one's rounding errors; None where they are exact.
    """
    scales = [1.0] * len(gradients) if noise is None else [level or 1.0 for level in noise]
    stacked = torch.cat([g.double() / s for g, s in zip(gradients, scales, strict=True)])
    rank = numerical_rank(stacked, 0.0 if noise is None else 1.0)
    basis = torch.linalg.svd(stacked, full_matrices=False).Vh[:rank]
    return InputSpan(basis, len(stacked))


def first_layer_span(shared: SharedGradient, projections: Sequence[str] = PROJECTIONS) -> InputSpan:
    """Return the span of what entered the decoder's first layer, from a LoRA update."""
    names = [
        name
        for name in shared.values
        if any(f"layers.0.self_attn.{p}.lora_A" in name for p in projections)
    ]
    return input_span(
        [shared.values[name] for name in names], [shared.rounding[name] for name in names]
    )


@torch.no_grad()
def token_inputs(model: VisionLanguageModel) -> Tensor:
    """Return what enters the first layer's projections for each token of the vocabulary, ``[V, d]``.

    It depends on the token alone: positions enter later, by rotation.
    """
    decoder: Any = model.language_model
    inputs: Tensor = decoder.layers[0].input_layernorm(decoder.embed_tokens.weight)
    return inputs


def embedding_tokens(gradient: Tensor) -> set[int]:
    """Return the tokens whose row ``[V, D]`` of the embedding's gradient is not zero.

    Holds where embeddings are trained and are not tied to the head: these are all tokens but the
    last, after which there is nothing to predict. Tied, every row has a gradient.
    """
    return {int(token) for token in gradient.abs().amax(dim=1).nonzero()[:, 0]}
