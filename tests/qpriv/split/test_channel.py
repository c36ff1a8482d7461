"""An attacker reads what the training step has sent: the same tensors, the same sizes."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from qpriv.paradigms import Centralized, Federated, Paradigm, Run, SplitLearning, UShapedSplit
from qpriv.paradigms.centralized import accumulate_gradients
from qpriv.split import Channel, CrossingRecord, Kind, RandomKey, Transcript
from qpriv.split.codecs import CodecName
from tests.qpriv.paradigms.runs import BATCH, RECIPE, begin
from tests.tiny_models import random_samples

PARADIGMS: dict[str, Any] = {"split": SplitLearning, "u_shaped": UShapedSplit}
SETTINGS: dict[str, dict[str, Any]] = {
    "as computed": {},
    **{name: {"codec": name} for name in ("fp32", "bf16", "fp16", "int8")},
    "bucket": {"bucket": 16},
    "int8, bucket": {"codec": "int8", "bucket": 16},
}
MICRO = replace(RECIPE, micro_batch_size=3)


def sent_in_training(paradigm: Any, run: Run) -> list[CrossingRecord]:
    """Return what a training step sends, as its own channel keeps it."""
    transcripts: list[Transcript] = []
    opened, take = paradigm.crossings, paradigm.traffic.add
    paradigm.crossings = lambda *given, **more: opened(*given, **{**more, "store": True})

    def keep(transcript: Transcript, samples: int) -> None:
        transcripts.append(transcript)
        take(transcript, samples)

    paradigm.traffic.add = keep
    optimizer = paradigm.optimizer(run.model, run.recipe)
    scheduler = run.recipe.scheduler(optimizer, 1)
    torch.manual_seed(3)
    paradigm.step(run, run.model.preprocessor(random_samples(BATCH)), optimizer, scheduler)
    return [message for transcript in transcripts for message in transcript.messages]


def recorded(channel: Channel, run: Run, key: RandomKey | None = None) -> list[CrossingRecord]:
    """Return what an attacker reads of the same step."""
    torch.manual_seed(3)
    with channel.record(run.model, gradients=True, key=key) as transcript:
        batch = run.model.preprocessor(random_samples(BATCH))
        micro = run.recipe.micro_batch_size
        accumulate_gradients(run.model, batch, run.policy, run.encode, micro)
    return transcript.messages


def differences(one: CrossingRecord, other: CrossingRecord) -> list[str]:
    """Return the fields in which two messages differ; tensors are compared bit for bit."""

    def plain(value: object) -> object:
        if isinstance(value, Tensor):
            return (value.dtype, value.shape, value.numpy().tobytes())
        return tuple(map(plain, value)) if isinstance(value, tuple) else value

    return [
        each.name
        for each in fields(CrossingRecord)
        if plain(getattr(one, each.name)) != plain(getattr(other, each.name))
    ]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", PARADIGMS)
def test_what_is_recorded_is_what_the_training_step_sent(kind: str, settings: str) -> None:
    paradigm = PARADIGMS[kind](**SETTINGS[settings])
    run = begin(paradigm, MICRO)
    # recorded first: the step moves the weights
    seen = recorded(paradigm.channel(), run)
    run.model.zero_grad()
    crossing = (Kind.ACTIVATION, Kind.GRADIENT, Kind.LENGTHS)
    sent = [m for m in sent_in_training(paradigm, run) if m.kind in crossing]
    cuts = len(paradigm.cuts)
    assert len(sent) == len(seen) == 2 * (2 * cuts + 1)  # two micro-batches; lengths go up once
    assert all(message.rows for message in sent)
    for one, other in zip(sent, seen, strict=True):
        assert differences(one, other) == []


def test_the_comparison_sees_a_bit() -> None:
    message = CrossingRecord(
        4, Kind.ACTIVATION, Channel((4,)).cuts[0].direction, (torch.zeros(2, 3),)
    )
    nudged = replace(message, rows=(torch.zeros(2, 3).index_fill(1, torch.tensor([1]), -0.0),))
    assert differences(message, message) == []
    assert differences(message, nudged) == ["rows"]


def test_a_codec_is_what_the_attacker_reads() -> None:
    rows: dict[CodecName | None, Tensor] = {}
    for codec in (None, "int8"):
        paradigm = SplitLearning(codec=codec)  # type: ignore[arg-type]
        run = begin(paradigm, replace(RECIPE, dropout=0.0))
        activation = next(m for m in recorded(paradigm.channel(), run))
        rows[codec] = torch.cat(activation.rows)  # type: ignore[index]
    steps = rows[None].abs().amax(dim=1, keepdim=True) / 127
    error = (rows["int8"] - rows[None]).abs() / steps
    assert 0.1 < float(error.max()) <= 0.5 * 1.001


@pytest.mark.parametrize(
    ("paradigm", "label", "hypothetical"),
    [
        (Centralized(), "hypothetical:up@4", True),
        (Federated(), "hypothetical:up@4", True),
        (SplitLearning(3), "up@3", False),
        (SplitLearning(codec="bf16"), "up@4/bf16", False),
        (UShapedSplit(codec="int8", bucket=16), "up@2+down@6/int8/bucket16", False),
    ],
)
def test_a_channel_says_what_it_is(paradigm: Paradigm, label: str, hypothetical: bool) -> None:
    paradigm.place(8)
    channel = paradigm.channel((4,))
    assert (channel.label, channel.hypothetical) == (label, hypothetical)
    assert channel.paradigm == paradigm.label
    assert channel.labels_cross is (paradigm.label != "u_shaped")


def test_another_bucket_than_the_runs_is_hypothetical() -> None:
    own = Channel((4,), bucket=16)
    assert own.with_bucket(16).label == "up@4/bucket16"
    assert own.with_bucket(8).label == "hypothetical:up@4/bucket8"
    assert Channel.supposed(()).label == ""
