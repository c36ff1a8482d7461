"""Bytes that crossed between parties, as results beside the accuracy they bought."""

from collections.abc import Sequence

import torch

from qpriv.result import Result
from qpriv.split import Channel, Direction, Traffic
from qpriv.split.padding import filled
from qpriv.split.traffic import PADDING, PASSED, SENT, WHOLE

from .answers import Answered


def traffic_results(traffic: Traffic) -> list[Result]:
    """Return what crossed in training since the last report.

    ``bytes_up`` and ``bytes_down`` are per training sample; ``bytes_epoch`` is all that crossed,
    either way, and ``bytes/<kind>/<direction>`` what of it was of one kind, as exact totals; ``codec_error/<kind>`` is the relative error of what arrived; ``bytes_padding``
    is what of ``bytes_up`` and ``bytes_down`` only fills messages up to a bucket.
    """
    samples = traffic.samples
    if not samples:
        return []
    note = "training, a sample"
    results = [
        Result(
            name=own.name,
            value=traffic.num_bytes(direction=way) / samples,
            n=samples,
            unit=own.unit,
            note=note,
        )
        for way, own in SENT.items()
    ]
    whole = sum(traffic.num_bytes(direction=way) for way in SENT)
    since = "training since the last report: an epoch, unless validation is set to come otherwise"
    results.append(Result(name=WHOLE.name, value=whole, n=samples, unit="bytes", note=since))
    if filler := traffic.filler():
        each = filler / samples
        results.append(Result(name=PADDING.name, value=each, n=samples, unit="bytes", note=note))
    for key, size in traffic.by_kind().items():
        results.append(Result(name=f"bytes/{key}", value=size, n=samples, unit="bytes"))
    for kind, error in traffic.codec_error().items():
        results.append(Result(name=f"codec_error/{kind}", value=error, n=samples))
    return results


def crossing_results(
    rows: Sequence[Answered], channel: Channel, width: int, dtype: torch.dtype
) -> list[Result]:
    """Return what would cross at the cuts of a channel in one pass: ``(k + T) d b`` bytes a cut.

    ``forward_bytes_up`` and ``forward_bytes_down``; ``bytes_up`` is what did cross in training.

    Args:
        rows: Answered questions; their tokens at a cut are ``k`` of the image and ``T`` of text.
        channel: What they would cross.
        width: Width ``d`` of the decoder.
        dtype: Type of its activations, ``b`` bytes.
    """
    if not rows:
        return []
    first = [row.tokens for row in rows]
    later = [tokens for row in rows for tokens in row.tokens_behind]
    size = channel.token_bytes(width, dtype) / len(rows)
    note = f"would cross at {', '.join(map(str, channel.layers))} in one pass"
    return [
        Result(
            name=PASSED[way].name,
            value=sum(filled(count, channel.bucket) for count in counts) * size,
            n=len(rows),
            unit=PASSED[way].unit,
            channel=channel.label,
            note=note,
        )
        for way, counts in ((Direction.UP, first), (Direction.DOWN, later))
    ]
