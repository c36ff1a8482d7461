"""Clients that step together under a defence that joins their parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from qpriv.models.batch import VQABatch
from qpriv.models.llava.prepared import PreparedInputs
from qpriv.split import Defence, Part, Transcript, stopped
from qpriv.split.crossing import Arrived

from .base import Run
from .centralized import StepReport, answer_tokens, prepared
from .own_gradient import OwnGradient
from .split_step import Lesson, count_pass, own_gradient

if TYPE_CHECKING:
    from .split_base import SplitParadigm


@dataclass(frozen=True)
class _Sent:
    """What a client sent in a step, and what arrived at the server."""

    client: int
    inputs: PreparedInputs
    transcript: Transcript
    own: OwnGradient
    arrived: Arrived


def learn_joined(
    split: "SplitParadigm", defence: Defence, run: Run, parts: Sequence[tuple[int, VQABatch]]
) -> list[Lesson]:
    """Add the gradients of a step in which the server computes on joined parts.

    All clients send first. The defence then joins their parts, and the layers after the first cut
    run on each joined part. The gradient returns through the join to all clients at once.

    Args:
        split: The paradigm.
        defence: The defence that joins the parts.
        run: Model, policy and recipe of the run.
        parts: Rows of each client.

    Returns:
        One lesson per client.

    Raises:
        ValueError: If the join changes the shape of a part.
    """
    tokens = sum(answer_tokens(part) for _, part in parts)
    sent = [_send(split, run, client, part) for client, part in parts]
    joined = defence.join([Part(each.arrived.rows, each.arrived.context) for each in sent])
    loss, lessons = torch.zeros((), device=run.model.device), []
    for each, rows in zip(sent, joined, strict=True):
        if rows.shape != each.arrived.rows.shape:
            raise ValueError(f"{defence.label} joined rows to {tuple(rows.shape)}: keep the shape")
        arrived, cut = replace(each.arrived, rows=rows), split.cuts[0]
        with split.opened(
            run.model, each.client, gradients=True, instead=arrived, scale=run.scaling.scale
        ) as behind:
            output = run.model(each.inputs)
        # share the list, because returning gradients are recorded later, in the joint backward pass
        each.transcript.messages += behind.transcript.messages
        behind.transcript.messages = each.transcript.messages
        count_pass(split, each.transcript, output)
        own = answer_tokens(each.inputs.batch)
        loss = loss + output.loss * (own / tokens)
        kept = int(output.at(cut).visual_counts.sum())
        report = StepReport(float(output.loss.detach()), own, kept, len(each.inputs))
        lessons.append(Lesson(each.client, report, each.transcript, each.own))
    run.scaling.backward(loss)
    return lessons


def _send(split: "SplitParadigm", run: Run, client: int, batch: VQABatch) -> _Sent:
    """Let a client compute up to the cut and send; add the gradient of its own terms."""
    own, cut = own_gradient(split, run, client), split.cuts[0]
    with split.opened(run.model, client, gradients=True, terms=True, stop=cut) as opened:
        inputs = prepared(run.model, batch, run.policy, run.encode)
        with stopped():
            run.model(inputs)
    own.learn(opened.take_terms(), 1.0)
    return _Sent(client, inputs, opened.transcript, own, opened.arrived)
