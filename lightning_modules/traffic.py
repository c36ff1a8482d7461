"""Bytes that crossed between parties, as results beside the accuracy they bought."""

from collections.abc import Sequence

import torch

from qpriv.boundary import Direction, Traffic
from qpriv.boundary.codecs import native
from qpriv.result import Result

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
            name=f"bytes_{way}",
            value=traffic.num_bytes(direction=way) / samples,
            n=samples,
            unit="bytes",
            note=note,
        )
        for way in (Direction.UP, Direction.DOWN)
    ]
    whole = sum(traffic.num_bytes(direction=way) for way in (Direction.UP, Direction.DOWN))
    since = "training since the last report: an epoch, unless validation is set to come otherwise"
    results.append(Result(name="bytes_epoch", value=whole, n=samples, unit="bytes", note=since))
    if filler := traffic.filler():
        each = filler / samples
        results.append(Result(name="bytes_padding", value=each, n=samples, unit="bytes", note=note))
    for key, size in traffic.by_kind().items():
        results.append(Result(name=f"bytes/{key}", value=size, n=samples, unit="bytes"))
    for kind, error in traffic.codec_error().items():
        results.append(Result(name=f"codec_error/{kind}", value=error, n=samples))
    return results


def crossing_results(
    rows: Sequence[Answered], cuts: Sequence[int], width: int, dtype: torch.dtype
) -> list[Result]:
    """Return what would cross at the cuts if there were parties: ``(k + T) d b`` a pass.

    Args:
        rows: Answered questions; their tokens are ``k`` kept patches and ``T`` text tokens.
        cuts: Where activations would leave their owner.
        width: Width ``d`` of the decoder.
        dtype: Type of its activations, ``b`` bytes.
    """
    if not rows:
        return []
    mean = sum(row.tokens for row in rows) / len(rows) * native(dtype).token_bytes(width)
    note = f"would cross at {', '.join(map(str, cuts))} in one pass"
    return [
        Result(name="bytes_up", value=mean, n=len(rows), unit="bytes", note=note),
        Result(
            name="bytes_down",
            value=mean * (len(cuts) - 1),
            n=len(rows),
            unit="bytes",
            note=note,
        ),
    ]
