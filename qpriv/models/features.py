"""`VisualFeatures`: what the frozen encoders see of a batch."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from qpriv.errors import ModelError

Feature = Literal[
    "cls_attention",
    "keys",
    "class_token",
    "last_query",
    "last_keys",
    "projected",
    "image_embeds",
    "text_embeds",
    "neutral_question",
]
"""What the encoders can give beside what every policy sees; see `VisualFeatures`."""

FEATURES: tuple[Feature, ...] = get_args(Feature)
NEUTRAL_QUESTION = "what is in the image ?"
"""Stands in the place of the question for a policy that must not see it."""

Needs = frozenset[Feature]
"""What a policy asks for; nothing else is computed or stored."""

NOTHING: Needs = frozenset()


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

    The first four are always there. The others are there where they were asked for, in the
    type of the model's weights, except for ``cls_attention``, which is float32. Sizes in
    brackets are those of one image or question of LLaVA-1.5 in float32; a cache stores all but
    the last four, which are computed from what is stored or from nothing.

    Args:
        patches: CLIP patch features of LLaVA's feature layer, before the projector, ``[B, N, D]``.
        pooled: CLIP's pooled image vector, ``[B, D]``.
        question: CLIP's pooled text vector before its projection, ``[B, Dt]``.
        sensitivity: DINOv2 patch features, ``[B, M, Dd]``.
        grid: Rows and columns of the CLIP patches; ``N = rows * columns``.
        sensitivity_grid: Rows and columns of the DINOv2 patches.
        cls_attention: How much the class token attends to each patch in the feature layer, summed
            over heads, ``[B, N]``; its softmax runs over the class token too (2 kB).
        keys: Attention keys of the patches in the feature layer, before any norm, mean over
            heads, ``[B, N, d]`` (144 kB).
        class_token: The feature layer's class token, ``[B, D]`` (4 kB).
        last_query: The class token's query in the tower's last layer, heads side by side,
            ``[B, C]`` (4 kB).
        last_keys: All keys of the tower's last layer, heads side by side, the class token's
            first, ``[B, N + 1, C]`` (2.3 MB).
        projected: The patches behind LLaVA's projector, ``[B, N, H]`` (9 MB).
        image_embeds: CLIP's image embedding of each patch, ``[B, N, P]``, not of unit length
            (1.7 MB).
        text_embeds: CLIP's embedding of the question, ``[B, P]``, not of unit length (3 kB).
        neutral_question: What ``question`` would be if `NEUTRAL_QUESTION` were asked, ``[B, Dt]``,
            the same in every row.
    """

    patches: Tensor
    pooled: Tensor
    question: Tensor
    sensitivity: Tensor
    grid: tuple[int, int]
    sensitivity_grid: tuple[int, int]
    cls_attention: Tensor | None = None
    keys: Tensor | None = None
    class_token: Tensor | None = None
    last_query: Tensor | None = None
    last_keys: Tensor | None = None
    projected: Tensor | None = None
    image_embeds: Tensor | None = None
    text_embeds: Tensor | None = None
    neutral_question: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of samples ``B``."""
        return len(self.patches)

    def __getitem__(self, rows: Tensor | slice) -> Self:
        """Return the features of some samples: a slice, or a LongTensor of row numbers."""
        return self._map(lambda tensor: tensor[rows])

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Self:
        """Return a copy on another device, and in another type where one is given."""
        return self._map(lambda tensor: tensor.to(device=device, dtype=dtype))

    def need(self, name: Feature) -> Tensor:
        """Return one of the features that are there only where they were asked for.

        Raises:
            ModelError: If it was not asked for.
        """
        value: Tensor | None = getattr(self, name)
        if value is None:
            raise ModelError(
                f"the features hold no {name}",
                remedy="name it in the policy's `needs`, and pass these on to `encode`",
            )
        return value

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
