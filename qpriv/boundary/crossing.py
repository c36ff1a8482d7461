"""`Crossing`: the place in the decoder where activations leave their owner and gradients return."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers.models.llava.modeling_llava import LlavaModel

from qpriv.errors import ConfigError
from qpriv.models.batch import VQABatch
from qpriv.models.sequences import TokenSelection
from qpriv.models.vision_language import VisionLanguageModel

from .codecs import Codec, native, squared_error
from .padding import check_bucket, filled, padding_cost
from .transcript import Direction, Kind, Span, Transcript

Stage = Callable[[Tensor, Tensor], Tensor]
"""Changes a tensor ``[B, S, d]`` given which tokens are real ``[B, S]``: a codec, noise, a hijack."""


@dataclass(frozen=True)
class _Layout:
    """Where the real tokens and the image lie in the padded batch that is passing."""

    real: Tensor
    spans: tuple[Span, ...]
    positions: Tensor | None
    prefill: bool

    def rows(self, padded: Tensor) -> list[Tensor]:
        return [row[keep] for row, keep in zip(padded, self.real.to(padded.device), strict=True)]


class Crossing:
    """A cut before one decoder layer, open while used as a context manager.

    With no stage given the hook only looks: it returns None, and the model computes as if it
    were not there, bit for bit, in its loss and in every gradient. A stage changes what passes:
    what crosses (and is recorded and counted) is what lies between ``encode`` and ``decode``, for
    the gradient between ``encode_gradient`` and ``decode_gradient``. A learned bottleneck fills
    both, a defence's noise only ``encode``, a hijacking server (FSHA) only ``encode_gradient``.
    The codec then writes either for the wire; recorded is what the receiver reads.

    It works in training, with gradient checkpointing (the hook stays outside the recomputed part),
    in evaluation and in `generate`.

    Args:
        model: The whole model, with or without LoRA.
        cut: The decoder layer before which the tensors cross; 0 is right after the projector.
        transcript: Where to record, or None.
        direction: Which way the activations go; gradients go the other way.
        gradients: Record the gradients too.
        encode: Applied to the activations by their sender.
        decode: Applied to the activations by their receiver.
        encode_gradient: Applied to the gradient by its sender.
        decode_gradient: Applied to the gradient by its receiver.
        codec: How numbers are written for the wire; None writes them as they are computed.
        bucket: Messages are filled to a multiple of so many tokens a sample.

    Raises:
        ConfigError: If the model has no such layer, or the bucket holds no token.
    """

    def __init__(
        self,
        model: VisionLanguageModel,
        cut: int,
        transcript: Transcript | None = None,
        *,
        direction: Direction = Direction.UP,
        gradients: bool = False,
        encode: Stage | None = None,
        decode: Stage | None = None,
        encode_gradient: Stage | None = None,
        decode_gradient: Stage | None = None,
        codec: Codec | None = None,
        bucket: int = 1,
    ) -> None:
        check_cut(model, cut)
        check_bucket(bucket)
        self.model, self.cut, self.transcript, self.direction = model, cut, transcript, direction
        self.codec, self.bucket = codec, bucket
        self.gradients = gradients
        self.encode, self.decode = encode, decode
        self.encode_gradient, self.decode_gradient = encode_gradient, decode_gradient
        self._layout: _Layout | None = None
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> Self:
        """Place the hooks."""
        entrance = find_llava(self.model)
        layer = self.model.decoder_layers[self.cut]
        self._handles = [
            entrance.register_forward_pre_hook(self._enter_model, with_kwargs=True),
            layer.register_forward_pre_hook(self._cross, with_kwargs=True),
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._layout = [], None

    def _enter_model(self, module: LlavaModel, _: object, kwargs: dict[str, Any]) -> None:
        self._layout = _read_layout(kwargs, module.config.image_token_id)

    def _cross(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        hidden: Tensor = args[0] if args else kwargs["hidden_states"]
        layout = self._layout
        if layout is None:
            raise RuntimeError("a decoder layer ran without its model: call the whole model")
        crossing = hidden if self.encode is None else self.encode(hidden, layout.real)
        received = crossing if self.codec is None else self.codec.through(crossing)
        self._record(Kind.ACTIVATION, self.direction, crossing, received, layout)
        self._watch_gradient(crossing, layout)
        received = received if self.decode is None else self.decode(received, layout.real)
        if received is hidden:
            return None
        if args:
            return (received, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": received}

    def _watch_gradient(self, crossing: Tensor, layout: _Layout) -> None:
        stages = (self.encode_gradient, self.decode_gradient, self.codec)
        if not crossing.requires_grad or not (self.gradients or any(stages)):
            return

        def turn_back(gradient: Tensor) -> Tensor | None:
            sent = gradient
            if self.encode_gradient is not None:
                sent = self.encode_gradient(gradient, layout.real)
            received = sent if self.codec is None else self.codec.round_trip(sent)
            if self.gradients:
                self._record(Kind.GRADIENT, self.direction.reverse, sent, received, layout)
            if self.decode_gradient is not None:
                received = self.decode_gradient(received, layout.real)
            return None if received is gradient else received

        crossing.register_hook(turn_back)  # type: ignore[no-untyped-call]

    def _record(
        self, kind: Kind, direction: Direction, sent: Tensor, received: Tensor, layout: _Layout
    ) -> None:
        if self.transcript is None:
            return
        rows = layout.rows(received)
        codec = self.codec or native(sent.dtype)
        lengths = [len(row) for row in rows]
        tokens = sum(filled(length, self.bucket) for length in lengths)
        size = codec.token_bytes(sent.shape[-1])
        self.transcript.add(
            self.cut,
            kind,
            direction,
            rows,
            spans=layout.spans,
            prefill=layout.prefill,
            num_bytes=tokens * size,
            distortion=None if received is sent else squared_error(layout.rows(sent), rows),
            filler=padding_cost(lengths, self.bucket) * size,
        )
        # what comes back to a client lies as it left: it knows the lengths
        if kind is Kind.ACTIVATION and layout.prefill and direction is Direction.UP:
            self._record_layout(direction, layout)

    def _record_layout(self, direction: Direction, layout: _Layout) -> None:
        # the receiver rebuilds mask and positions from the lengths, unless positions have gaps
        assert self.transcript is not None
        lengths = list(layout.real.sum(dim=1, keepdim=True))
        self.transcript.add(self.cut, Kind.LENGTHS, direction, lengths)
        if layout.positions is not None:
            rows = layout.rows(layout.positions)
            self.transcript.add(self.cut, Kind.POSITIONS, direction, rows)


@contextmanager
def record(
    model: VisionLanguageModel,
    cuts: Sequence[int],
    *,
    gradients: bool = False,
    store: bool = True,
) -> Iterator[Transcript]:
    """Record what crosses one cut ``(C,)`` or the two cuts ``(C_A, C_B)`` of a U-shaped split.

    Activations go up at the first cut and come down at the second one.

    Raises:
        ConfigError: If a cut is beyond the model's depth or they do not rise.
    """
    if not cuts or len(cuts) > 2 or list(cuts) != sorted(set(cuts)):
        raise ConfigError(f"cuts are {tuple(cuts)}", remedy="give one cut, or two that rise")
    transcript = Transcript(store=store)
    with ExitStack() as stack:
        for cut, direction in zip(cuts, (Direction.UP, Direction.DOWN), strict=False):
            crossing = Crossing(model, cut, transcript, direction=direction, gradients=gradients)
            stack.enter_context(crossing)
        yield transcript


def activation_bytes(
    model: VisionLanguageModel, batch: VQABatch, decision: TokenSelection | None
) -> Tensor:
    """Return the size of each sample's activations at any cut, ``(k + T) d b``, ``[B]`` int64.

    Nothing runs for it. The gradient that comes back is as large.
    """
    tokens = model.sequences(batch, decision).attention_mask.sum(dim=1)
    return tokens * model.hidden_size * next(model.language_model.parameters()).element_size()


def check_cut(model: VisionLanguageModel, cut: int) -> None:
    """Refuse a cut that the model does not have.

    Raises:
        ConfigError: If there is no such decoder layer.
    """
    if not 0 <= cut < model.num_layers:
        raise ConfigError(
            f"cut is {cut}", remedy=f"the model has decoder layers 0 to {model.num_layers - 1}"
        )


def find_llava(model: nn.Module) -> LlavaModel:
    """Return the module that sees tokens, mask and image at once, with or without adapters.

    Adapters call the outer model's `forward` directly, past its hooks; this one is always called.
    """
    return next(module for module in model.modules() if isinstance(module, LlavaModel))


def _read_layout(kwargs: dict[str, Any], image_token: int) -> _Layout:
    tokens: Tensor = kwargs["input_ids"]
    width = tokens.shape[1]
    mask = kwargs.get("attention_mask")
    prefill = mask is None or mask.shape[1] == width
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask[:, -width:].bool()
    spans = [_image_span(row[keep] == image_token) for row, keep in zip(tokens, real, strict=True)]
    return _Layout(real, tuple(spans), _gapped_positions(kwargs.get("position_ids"), real), prefill)


def _image_span(is_image: Tensor) -> Span:
    places = is_image.nonzero()
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)


def _gapped_positions(positions: Tensor | None, real: Tensor) -> Tensor | None:
    """Return positions ``[B, S]`` that the receiver could not count out itself, or None."""
    if positions is None:
        return None
    positions = positions.expand_as(real)
    counted = real.long().cumsum(dim=1) - 1
    return None if torch.equal(positions[real], counted[real]) else positions
