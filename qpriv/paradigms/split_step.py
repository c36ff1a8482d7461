"""One training step of a split in a single process, and the records of what crosses.

The step runs on the whole model with open cuts. `SplitClient` and `Server` take the same step by
messages, with the same functions for preparing samples, clipping gradients and adding the clients'
own terms.
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
    """A client's gradients of a step, before clipping and the optimiser step.

    Args:
        client: The client.
        report: Loss and counts.
        transcript: What crossed.
        own: Gradient of the client's own loss terms.
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
        run: Model, policy and recipe of the run.
        client: The client.
        batch: The client's rows.
        tokens: Answer tokens of all clients in this step; None counts this client only.
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
    """Return the collector of a client's own gradient in a step."""
    return OwnGradient(split.trained(run.model, split.adapter_of(client)), run.recipe.clip)


def take_step(
    split: "SplitParadigm", run: Run, lessons: Sequence[Lesson], optimizer: Optimizer
) -> None:
    """Take one optimiser step of the server and the lessons' clients, clipped by their norm."""
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
    """Record labels and token count that a pass sends to the server, and the returned loss."""
    if not split.labels_cross:
        return
    cut, bucket = split.cuts[-1], split.bucket
    crossing = output.at(cut)
    real = crossing.attention_mask.bool()
    rows = [row[keep].int() for row, keep in zip(crossing.labels, real, strict=True)]
    # padded like the activations, because their size would reveal what the padding hides
    lengths = [len(row) for row in rows]
    sizes = [_LABEL_BYTES * filled(length, bucket) for length in lengths]
    filler = _LABEL_BYTES * padding_cost(lengths, bucket)
    transcript.add(cut, Kind.LABELS, Direction.UP, rows, sizes=sizes, filler=filler)
    count_scalars(transcript, cut)


def count_scalars(transcript: Transcript, cut: int) -> None:
    """Record one number that goes up and one that comes down."""
    for direction in (Direction.UP, Direction.DOWN):
        transcript.add(cut, Kind.SCALAR, direction, [torch.zeros(1, dtype=torch.float64)])


def count_hand_over(
    transcript: Transcript, cut: int, weights: Sequence[nn.Parameter], optimizer: Optimizer
) -> None:
    """Record the hand-over of an adapter and its optimiser moments to the next client."""
    moments = [
        value
        for weight in weights
        for value in optimizer.state.get(weight, {}).values()
        if isinstance(value, Tensor)
    ]
    transcript.add(cut, Kind.ADAPTER, Direction.ACROSS, weights)
    transcript.add(cut, Kind.OPTIMIZER, Direction.ACROSS, moments)
