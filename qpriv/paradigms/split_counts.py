"""What crosses in a split beside activations and gradients: counted as it would be sent."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from qpriv.models.llava.vision_language import LanguageOutput
from qpriv.split import Direction, Kind, Transcript
from qpriv.split.padding import filled, padding_cost

_LABEL_BYTES = 4


def count_loss(transcript: Transcript, cut: int, output: LanguageOutput, bucket: int) -> None:
    """Record labels and token count on their way to a server, and the loss on its way back."""
    crossing = output.at(cut)
    real = crossing.attention_mask.bool()
    rows = [row[keep].int() for row, keep in zip(crossing.labels, real, strict=True)]
    # filled like the activations they cross with, or their size would tell what those hide
    lengths = [len(row) for row in rows]
    sizes = [_LABEL_BYTES * filled(length, bucket) for length in lengths]
    filler = _LABEL_BYTES * padding_cost(lengths, bucket)
    transcript.add(cut, Kind.LABELS, Direction.UP, rows, sizes=sizes, filler=filler)
    count_scalars(transcript, cut)


def count_scalars(transcript: Transcript, cut: int) -> None:
    """Record one number that goes up and one that comes back."""
    for direction in (Direction.UP, Direction.DOWN):
        transcript.add(cut, Kind.SCALAR, direction, [torch.zeros(1, dtype=torch.float64)])


def count_hand_over(
    transcript: Transcript, cut: int, weights: Sequence[nn.Parameter], optimizer: Optimizer
) -> None:
    """Record an adapter, with its moments, on its way from one client to the next."""
    moments = [
        value
        for weight in weights
        for value in optimizer.state.get(weight, {}).values()
        if isinstance(value, Tensor)
    ]
    transcript.add(cut, Kind.ADAPTER, Direction.ACROSS, weights)
    transcript.add(cut, Kind.OPTIMIZER, Direction.ACROSS, moments)
