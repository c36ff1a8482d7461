"""What the parties of a split learn in one step, how they take it, and what that tells the server.

This is the step as one process takes it, on the whole model with its cuts open. `SplitClient` and
`Server` take the same one by messages: samples are divided and prepared, gradients clipped and the
clients' own terms added by the very same functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from qpriv.models.batch import VQABatch
from qpriv.models.llava.vision_language import LanguageOutput
from qpriv.split import Direction, Kind, Transcript
from qpriv.split.padding import filled, padding_cost

from .base import Run
from .centralized import StepReport, accumulate_gradients
from .clipping import square_norm
from .own_gradient import OwnGradient, clip_parties
from .party_adapters import SERVER

if TYPE_CHECKING:
    from .split_base import SplitParadigm

_LABEL_BYTES = 4


@dataclass(frozen=True)
class Lesson:
    """What a client has learned in a step, before it is clipped and taken.

    Args:
        client: The client.
        report: What it saw.
        transcript: What has crossed.
        own: The gradient of its own terms.
    """

    client: int
    report: StepReport
    transcript: Transcript
    own: OwnGradient


def learn(
    split: "SplitParadigm", run: Run, client: int, batch: VQABatch, tokens: int | None = None
) -> Lesson:
    """Add the gradients of a client's rows to its weights and the server's.

    Args:
        split: The paradigm.
        run: What is trained.
        client: The client.
        batch: Its rows.
        tokens: Answer tokens of all that learn in this step; None is this client alone.
    """
    own = own_gradient(split, run, client)

    def observe(output: LanguageOutput, share: float) -> None:
        count_pass(split, transcript, output)
        own.take(share)

    scale = run.scaling.scale
    with split.crossings(run.model, client, gradients=True, own=own, scale=scale) as transcript:
        report = accumulate_gradients(
            run.model,
            batch,
            run.policy,
            run.encode,
            run.recipe.micro_batch_size,
            run.scaling.backward,
            tokens,
            observe=observe,
            cut=split.cuts[0],
        )
    if tokens is not None:
        report = replace(report, loss=report.loss * tokens / report.tokens)
    return Lesson(client, report, transcript, own)


def own_gradient(split: "SplitParadigm", run: Run, client: int) -> OwnGradient:
    """Return what takes the gradient of a client's own terms in a step."""
    return OwnGradient(split.trained(run.model, split.adapter_of(client)), run.recipe.clip)


def take_step(
    split: "SplitParadigm", run: Run, lessons: Sequence[Lesson], optimizer: Optimizer
) -> None:
    """Take a step of all that have learned, clipped by the norm over all of them."""
    names = (SERVER, *(split.adapter_of(lesson.client) for lesson in lessons))
    parties = [split.trained(run.model, name) for name in names]
    scale = run.scaling.scale
    total = sum(square_norm(weights, scale) for weights in parties)
    clip_parties(parties, total, run.recipe.clip, [lesson.own for lesson in lessons], scale)
    for lesson in lessons:
        count_scalars(lesson.transcript, split.cuts[0])
        split.traffic.add(lesson.transcript, lesson.report.samples)
    run.scaling.step(optimizer)


def count_pass(split: "SplitParadigm", transcript: Transcript, output: LanguageOutput) -> None:
    """Record what a pass tells the server beside activations: labels and the number of tokens.

    The loss comes back.
    """
    if not split.labels_cross:
        return
    cut, bucket = split.cuts[-1], split.bucket
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
