"""`VQABatch`: samples as tensors, the input of the frozen encoders and of LLaVA."""

from collections.abc import Callable
from typing import Self

import torch
from msgspec import Struct
from torch import Tensor

from qpriv.datasets.sample import VQASample


# no dataclass: trainers take these apart to convert their floats, and refuse frozen ones
class VQABatch(Struct, frozen=True):
    """Question-image pairs, ready for the model, whose parts convert them to their own type.

    Args:
        samples: What the rows of the tensors were made of.
        pixel_values: CLIP-normalised crops, ``[B, 3, H, W]``.
        sensitivity_pixels: The same crops, sized and normalised for DINOv2, ``[B, 3, h, w]``.
        question_ids: CLIP tokens of the bare questions, ``[B, Tq]``.
        question_mask: 1 where ``question_ids`` holds a token, ``[B, Tq]``.
        input_ids: Prompt, answer and end token, padded right, one image id a patch, ``[B, S]``.
        attention_mask: 1 where ``input_ids`` holds a token, ``[B, S]``.
        labels: ``input_ids`` where answer and end token stand, -100 elsewhere, ``[B, S]``.
        prompt_ids: The prompt alone, padded left as generation needs it, ``[B, P]``.
        prompt_mask: 1 where ``prompt_ids`` holds a token, ``[B, P]``.
    """

    samples: tuple[VQASample, ...]
    pixel_values: Tensor
    sensitivity_pixels: Tensor
    question_ids: Tensor
    question_mask: Tensor
    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor
    prompt_ids: Tensor
    prompt_mask: Tensor

    def __len__(self) -> int:
        """Return the number of samples ``B``."""
        return len(self.samples)

    def __getitem__(self, rows: Tensor | slice) -> Self:
        """Return the batch of some samples: a slice, or a LongTensor of row numbers.

        The padding stays as wide as it was.
        """
        numbers = range(len(self))[rows] if isinstance(rows, slice) else rows.tolist()
        samples = tuple(self.samples[number] for number in numbers)
        return self._map(lambda tensor: tensor[rows], samples)

    def to(self, device: torch.device | str) -> Self:
        """Return a copy on another device."""
        return self._map(lambda tensor: tensor.to(device), self.samples)

    def _map(self, function: Callable[[Tensor], Tensor], samples: tuple[VQASample, ...]) -> Self:
        names = self.__struct_fields__[1:]
        return type(self)(samples, *(function(getattr(self, name)) for name in names))
