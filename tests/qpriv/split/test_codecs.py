import pytest
import torch
from torch import Tensor

from qpriv.errors import ConfigError
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.split import Channel, Direction, Kind, Traffic, Transcript, make_codec
from qpriv.split.codecs import CodecName
from qpriv.split.padding import fill_rows, filled, padding_cost, strip_rows
from tests.qpriv.split.test_crossing import ragged
from tests.tiny_models import HIDDEN_SIZE, NUM_PATCHES, random_samples

NAMES: tuple[CodecName, ...] = ("fp32", "bf16", "fp16", "int8")
CUT = 4


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", NAMES)
def test_what_crosses_is_as_large_as_counted(name: CodecName) -> None:
    codec, values = make_codec(name), noise(5, 24)
    size = sum(part.numel() * part.element_size() for part in codec.encode(values).values())
    assert size == 5 * codec.token_bytes(24)


@pytest.mark.parametrize(("name", "bound"), [("bf16", 2**-8), ("fp16", 2**-11)])
def test_floats_round_to_their_mantissa(name: CodecName, bound: float) -> None:
    values = noise(50, 24)
    error = (make_codec(name).round_trip(values) - values).abs() / values.abs()
    assert 0 < error.max() <= bound


def test_int8_errs_by_half_a_step_of_each_token() -> None:
    values = noise(50, 24) * torch.logspace(-3, 3, 50)[:, None]
    error = (make_codec("int8").round_trip(values) - values).abs().amax(dim=1)
    step = values.abs().amax(dim=1) / 127
    assert (error <= step / 2 * 1.001).all() and (error > step / 8).all()


def test_empty_and_broken_tokens_arrive_as_they_left() -> None:
    values = torch.stack([torch.zeros(4), torch.tensor([1.0, float("nan"), 2.0, 3.0])])
    arrived = make_codec("int8").round_trip(values)
    assert torch.equal(arrived[0], values[0])
    assert arrived[1].isnan().all()


def test_nothing_lost_is_the_very_same_tensor() -> None:
    values = noise(2, 3).requires_grad_()
    assert make_codec("fp32").through(values) is values


@pytest.mark.parametrize("name", ["bf16", "int8"])
def test_gradients_pass_a_codec_as_they_come(name: CodecName) -> None:
    values, weights = noise(2, 3).requires_grad_(), noise(2, 3) + 1
    (make_codec(name).through(values) * weights).sum().backward()
    assert torch.equal(values.grad, weights)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_a_coded_cut_counts_its_bytes_and_reports_its_error(
    model: VisionLanguageModel, name: CodecName
) -> None:
    decision, batch = ragged(), model.preprocessor(random_samples(4))
    plain = model(batch, None, decision).loss
    codec = make_codec(name)
    with Channel((CUT,), codec).record(model, gradients=True) as transcript:
        loss = model(batch, None, decision).loss
        loss.backward()
    text = batch.attention_mask.sum(dim=1) - NUM_PATCHES
    expected = int((decision.counts + text).sum()) * codec.token_bytes(HIDDEN_SIZE)
    traffic = Traffic()
    traffic.add(transcript, samples=4)
    assert traffic.num_bytes(kind=Kind.ACTIVATION, direction=Direction.UP) == expected
    assert traffic.num_bytes(kind=Kind.GRADIENT, direction=Direction.DOWN) == expected
    error = traffic.codec_error()
    if name == "fp32":
        assert torch.equal(loss, plain) and error == {}
    else:
        assert 0 < abs(float(loss - plain)) < 0.5
        assert 1e-5 < error["activation"] < 2e-2 and 1e-5 < error["gradient"] < 2e-2


def test_filled_messages_cost_the_next_multiple(model: VisionLanguageModel) -> None:
    decision, batch = ragged(), model.preprocessor(random_samples(4))
    channel = Channel((CUT,), bucket=16)
    with channel.record(model) as transcript:
        model(batch, None, decision)
    lengths = (decision.counts + batch.attention_mask.sum(dim=1) - NUM_PATCHES).tolist()
    sent = transcript.num_bytes(kind=Kind.ACTIVATION) / (HIDDEN_SIZE * 4)
    assert sent == sum(filled(length, 16) for length in lengths) > sum(lengths)
    assert [len(row) for row in transcript.rows(CUT)] == lengths
    assert transcript.select(CUT)[0].sizes == tuple(
        channel.activation_bytes(model, model.prepare(batch, None, decision)).tolist()
    )
    traffic = Traffic()
    traffic.add(transcript, samples=4)
    assert traffic.filler() == padding_cost(lengths, 16) * HIDDEN_SIZE * 4 > 0


def test_filled_rows_are_stripped_again() -> None:
    rows, lengths = noise(9, 3), torch.tensor([4, 5])
    filled_rows = fill_rows(rows, lengths, 4)
    assert len(filled_rows) == 12 and bool((filled_rows[-3:] == 0).all())
    assert torch.equal(strip_rows(filled_rows, lengths, 4), rows)


def test_traffic_survives_a_checkpoint() -> None:
    transcript = Transcript(store=False)
    transcript.add(
        4, Kind.GRADIENT, Direction.DOWN, [noise(3, 8)], distortion=(1.0, 4.0), filler=32
    )
    traffic, again = Traffic(), Traffic()
    traffic.add(transcript, samples=2)
    again.load(traffic.state())
    assert again.by_kind() == traffic.by_kind() == {"gradient/down": 96}
    assert again.codec_error() == {"gradient": 0.5} and again.samples == 2
    assert again.filler() == traffic.filler() == 32


def test_an_empty_bucket_is_refused() -> None:
    with pytest.raises(ConfigError, match="bucket is 0"):
        Channel((CUT,), bucket=0)
