"""Bytes that crossed between parties, as results."""

from collections.abc import Sequence

import torch

from qpriv.result import Result
from qpriv.split import Channel, Direction, Traffic
from qpriv.split.padding import filled
from qpriv.split.traffic import PADDING, PASSED, SENT, WHOLE

from .answers import Answered


def traffic_results(traffic: Traffic) -> list[Result]:
    """Return the traffic in training since the last report; empty if nothing crossed.

    ``bytes_up`` and ``bytes_down`` are bytes per training sample, and ``bytes_padding`` is their
    part that only pads messages to a bucket. ``bytes_epoch`` is the exact total in both
    directions, and ``bytes/<kind>/<direction>`` its part of one kind and direction.
    ``codec_error/<kind>`` is the relative error of the decoded tensors.
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
    """Return the bytes that one pass would send at a channel's cuts: ``(k + T) d b`` per cut.

    The names are ``forward_bytes_up`` and ``forward_bytes_down``, in contrast to ``bytes_up``,
    which was really sent in training.

    Args:
        rows: Answered questions, with ``k`` visual and ``T`` text tokens at a cut.
        channel: The channel.
        width: Width ``d`` of the decoder.
        dtype: Dtype of the activations, of ``b`` bytes per element.
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
