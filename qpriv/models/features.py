"""`VisualFeatures`: what the frozen encoders see of a batch."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class FeatureSizes:
    """Widths of a model's features.

    Args:
        patch: Values ``D`` of a patch.
        pooled: Values of the pooled image vector.
        question: Values ``Dt`` of the question vector.
        sensitivity: Values ``Dd`` of a sensitivity patch.
    """

    patch: int
    pooled: int
    question: int
    sensitivity: int


@dataclass(frozen=True)
class VisualFeatures:
    """Outputs of the frozen encoders, the input of every pruning decision.

    Args:
        patches: CLIP patch features of LLaVA's feature layer, before the projector, ``[B, N, D]``.
        pooled: CLIP's pooled image vector, ``[B, D]``.
        question: CLIP's pooled text vector before its projection, ``[B, Dt]``.
        sensitivity: DINOv2 patch features, ``[B, M, Dd]``.
        grid: Rows and columns of the CLIP patches; ``N = rows * columns``.
        sensitivity_grid: Rows and columns of the DINOv2 patches.
        cls_attention: CLS attention of the feature layer, ``[B, N]``, for pruners that rank by it.
        keys: Attention keys of the feature layer, mean over heads, ``[B, N, d]``.
    """

    patches: Tensor
    pooled: Tensor
    question: Tensor
    sensitivity: Tensor
    grid: tuple[int, int]
    sensitivity_grid: tuple[int, int]
    cls_attention: Tensor | None = None
    keys: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of samples ``B``."""
        return len(self.patches)

    def __getitem__(self, rows: Tensor | slice) -> Self:
        """Return the features of some samples: a slice, or a LongTensor of row numbers."""
        return self._map(lambda tensor: tensor[rows])

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Self:
        """Return a copy on another device, and in another type where one is given."""
        return self._map(lambda tensor: tensor.to(device=device, dtype=dtype))

    @property
    def sizes(self) -> FeatureSizes:
        """Return the widths of the features."""
        return FeatureSizes(
            self.patches.shape[-1],
            self.pooled.shape[-1],
            self.question.shape[-1],
            self.sensitivity.shape[-1],
        )

    def _map(self, function: Callable[[Tensor], Tensor]) -> Self:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        for name, value in values.items():
            if isinstance(value, Tensor):
                values[name] = function(value)
        return type(self)(**values)
