"""`Crossing`: the place in the decoder where activations leave their owner and gradients return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.models.llava.modeling_llava import LlavaModel

from qpriv.models.decoder.layer_inputs import layer_inputs
from qpriv.models.llava.forward_pass import Mode
from qpriv.models.llava.vision_language import VisionLanguageModel

from .codecs import Codec, native, squared_error
from .defence import Defence
from .layers import TokenLayout
from .padding import filled, padding_cost
from .stages import RandomKey, Site, StageContext, Stages, encoded, passed, places_by_sample
from .transcript import Direction, Kind, Span, Transcript


@dataclass(frozen=True)
class _Layout:
    """Where the real tokens and the image lie in the padded batch that is passing."""

    real: Tensor
    spans: tuple[Span, ...]
    positions: Tensor | None
    prefill: bool

    @property
    def packed(self) -> TokenLayout:
        """Return how the real tokens are padded again."""
        side = "right" if bool(self.real[:, 0].all()) else "left"
        positions = None if self.positions is None else self.positions[self.real]
        return TokenLayout(self.real.sum(dim=1), side, positions)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Arrived:
    """What has come to the far end of a cut.

    Args:
        rows: Tokens behind ``decode``, one sample after another, ``[sum T_i, d]``.
        context: What the parties know of them.
        places: Which of the rows that came to the cut they are; None for all of them.
    """

    rows: Tensor
    context: StageContext
    places: Tensor | None


class StoppedAtCut(Exception):
    """The layers before the cut are done, and those behind it shall not run."""


class Crossing:
    """A cut before one decoder layer, open while used as a context manager.

    With no stage and no codec that loses anything the hook only looks: the model computes as if
    it were not there, bit for bit, in its loss and in every gradient. Stages change what passes:
    what crosses (and is recorded and counted) is what lies between ``encode`` and ``decode``, for
    the gradient between ``encode_gradient`` and ``decode_gradient``. The codec then writes either
    for the wire; recorded is what the receiver reads.

    It works in training, with gradient checkpointing (the hook stays outside the recomputed part),
    in evaluation and in `generate`. `Channel` alone makes crossings.

    Args:
        model: The whole model, with or without LoRA.
        site: The decoder layer before which the tensors cross, and which way activations go.
        transcript: Where to record.
        gradients: Record the gradients too.
        codec: How numbers are written for the wire; None writes them as they are computed.
        bucket: Messages are filled to a multiple of so many tokens a sample.
        defence: What the run does to what crosses, or None.
        tap: What an attacker does there besides, after the defence's own stages.
        key: What random numbers of the first pass depend on; each pass is a micro-batch further.
        mode: What the passes are for; None is what the model says.
        stops: Raise `StoppedAtCut` in place of the layers behind the cut.
        asks: Ask the defence for terms of the client's own gradient.
        instead: What arrives in place of what would cross now: it has crossed already.
        scale: By what the loss is multiplied; gradients cross without it.
    """

    def __init__(
        self,
        model: VisionLanguageModel,
        site: Site,
        transcript: Transcript,
        *,
        gradients: bool,
        codec: Codec | None,
        bucket: int,
        defence: Defence | None,
        tap: Stages,
        key: RandomKey,
        mode: Mode | None,
        stops: bool,
        asks: bool = False,
        instead: Arrived | None = None,
        scale: float = 1.0,
    ) -> None:
        self.model, self.site, self.transcript = model, site, transcript
        self.gradients, self.codec, self.bucket = gradients, codec, bucket
        self.defence, self.tap, self.key, self.mode = defence, tap, key, mode
        self.stops, self.asks, self.instead, self.scale = stops, asks, instead, scale
        self.arrived: Arrived | None = None
        """What has come behind a cut that stops the model."""
        self.terms: list[Tensor] = []
        """Terms for the client's own gradient, of the passes since they were last taken."""
        self._passes, self._token = 0, 0
        self._layout: _Layout | None = None
        self._behind = _Behind(model, site.cut)
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> Self:
        """Place the hooks."""
        entrance = find_llava(self.model)
        layer = self.model.decoder_layers[self.site.cut]
        self._handles = [
            entrance.register_forward_pre_hook(self._enter_model, with_kwargs=True),
            layer.register_forward_pre_hook(self._cross, with_kwargs=True),
        ]
        if self.defence is not None:
            self._handles += self._behind.place()
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
        # a policy may shorten the rows on their way to the cut
        entering = self.model.entering(self.site.cut, kwargs)
        self._layout = layout = _read_layout(entering, module.config.image_token_id)
        self._passes += layout.prefill
        self._token = 0 if layout.prefill else self._token + 1
        self._behind.enter(layout.prefill)

    def _cross(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        hidden: Tensor = args[0] if args else kwargs["hidden_states"]
        layout = self._layout_here()
        lossless = self.codec is None or self.codec.keeps(hidden.dtype)
        if self.instead is not None:
            received, told = self._receive(self.instead, layout, kwargs.get("cache"))
        elif self.defence is None and not self.tap and lossless:
            self._look(hidden, layout)
            received, told = hidden, None
        else:
            received, told = self._send(hidden, layout, kwargs.get("cache"))
        if self.stops:
            raise StoppedAtCut
        changed = told or {}
        if received is hidden and not changed:
            return None
        if args:
            return (received, *args[1:]), {**kwargs, **changed}
        return args, {**kwargs, **changed, "hidden_states": received}

    def _look(self, hidden: Tensor, layout: _Layout) -> None:
        """Record what passes, which nothing changes on its way."""
        real, context = layout.real.to(hidden.device), self._context(layout)
        rows, left = hidden[real], self._left_of_client(context)
        self._record(Kind.ACTIVATION, rows, rows, context, left)
        if not hidden.requires_grad or not self.gradients:
            return

        def watch(gradient: Tensor) -> None:
            returned = self._unscaled(gradient[real])
            self._record(Kind.GRADIENT, returned, returned, context, left)

        hidden.register_hook(watch)  # type: ignore[no-untyped-call]

    def _send(
        self, hidden: Tensor, layout: _Layout, cache: DynamicCache | None
    ) -> tuple[Tensor, dict[str, Any] | None]:
        """Return what the layers behind the cut compute with, and what they are told besides."""
        real, stages = layout.real.to(hidden.device), self._stages()
        crossed, context, places = encoded(stages, hidden[real], self._context(layout))
        # a node of its own: the gradient of the client's own term does not cross
        sent = crossed.view_as(crossed) if self._add_term(crossed, context) else crossed
        received = sent if self.codec is None else self.codec.through(sent)
        if places is not None:
            self._note_withdrawal(places, context, real)
        self._record(Kind.ACTIVATION, sent, received, context, self._left_of_client(context))
        self._watch_gradient(sent, context, stages)
        decoders = [each.decode for each in reversed(stages)]
        received = passed(decoders, received, context.of("decode"))
        arrived = Arrived(received, context, places)
        if self.stops:
            self.arrived = arrived
        return self._lay_out(arrived, real, cache)

    def _receive(
        self, arrived: Arrived, layout: _Layout, cache: DynamicCache | None
    ) -> tuple[Tensor, dict[str, Any] | None]:
        """Return what the layers behind the cut compute with of what has crossed before."""
        real = layout.real.to(arrived.rows.device)
        if arrived.places is not None:
            self._note_withdrawal(arrived.places, arrived.context, real)
        return self._lay_out(arrived, real, cache)

    def _lay_out(
        self, arrived: Arrived, real: Tensor, cache: DynamicCache | None
    ) -> tuple[Tensor, dict[str, Any] | None]:
        rows, context = arrived.rows, arrived.context
        if arrived.places is None:
            padded = rows.new_zeros((*real.shape, rows.shape[-1]))
            padded = padded.index_put((real,), rows)
            return padded, self._behind.go_on(padded, cache)
        padded = context.layout.unpack(rows)
        return padded, self._behind.begin(padded, context.layout, cache)

    def _add_term(self, crossed: Tensor, context: StageContext) -> bool:
        """Ask the defence for a term where a client sends in training; return whether it has one."""
        own, sends = self.defence, self.site.direction is Direction.UP
        if own is None or not self.asks or not sends or context.mode != "train":
            return False
        term = own.loss(crossed, context) if "train" in own.active_in else None
        self.terms += [] if term is None else [term]
        return term is not None

    def _watch_gradient(
        self,
        sent: Tensor,
        context: StageContext,
        stages: tuple[Stages, ...],
    ) -> None:
        left = self._left_of_client(context)
        encoders = [each.encode_gradient for each in stages]
        decoders = [each.decode_gradient for each in reversed(stages)]
        lossless = self.codec is None or self.codec.keeps(sent.dtype)
        changed = any(encoders) or any(decoders) or not lossless
        if not sent.requires_grad or not (self.gradients or changed):
            return

        def turn_back(gradient: Tensor) -> Tensor | None:
            own = self._unscaled(gradient)
            returned = passed(encoders, own, context.of("encode_gradient"))
            received = returned if self.codec is None else self.codec.round_trip(returned)
            if self.gradients:
                self._record(Kind.GRADIENT, returned, received, context, left)
            received = passed(decoders, received, context.of("decode_gradient"))
            if received is own:
                return None
            return received if self.scale == 1 else received * self.scale

        sent.register_hook(turn_back)  # type: ignore[no-untyped-call]

    def _unscaled(self, gradient: Tensor) -> Tensor:
        return gradient if self.scale == 1 else gradient / self.scale

    def _stages(self) -> tuple[Stages, ...]:
        own = self.defence
        if own is None or self._mode() not in own.active_in:
            return (self.tap,)
        return own.stages(self.site), self.tap

    def _mode(self) -> Mode:
        current = self.model.under_way
        if self.mode is not None:
            return self.mode
        if current is not None:
            return current.mode
        return "train" if self.model.training else "evaluate"

    def _context(self, layout: _Layout) -> StageContext:
        current = self.model.under_way
        context = StageContext(
            site=self.site,
            layout=layout.packed,
            spans=layout.spans,
            mode=self._mode(),
            token=self._token,
            key=self.key.micro(self._passes - 1),
        )
        return context if current is None else context.about(current.inputs)

    def _layout_here(self) -> _Layout:
        """Return the layout at this depth, where others may have dropped tokens before."""
        layout, current = self._layout, self.model.under_way
        if layout is None:
            raise RuntimeError("a decoder layer ran without its model: call the whole model")
        if current is None or current.kept is None or not layout.prefill:
            return layout
        return _left(layout, current.kept)

    def _note_withdrawal(self, places: Tensor, context: StageContext, real: Tensor) -> None:
        current = self.model.under_way
        if current is None:
            raise RuntimeError("rows are withdrawn, and nobody has said of which samples")
        current.keep(places_by_sample(places, real.sum(dim=1), context))

    def _left_of_client(self, context: StageContext) -> tuple[Tensor, ...]:
        """Return which of the client's tokens are at the cut; nothing where all of them are."""
        current = self.model.under_way
        return () if current is None or context.token else current.kept or ()

    def _record(
        self,
        kind: Kind,
        sent: Tensor,
        received: Tensor,
        context: StageContext,
        places: Sequence[Tensor],
    ) -> None:
        size = (self.codec or native(sent.dtype)).token_bytes(sent.shape[-1])
        lengths, rows = context.lengths, context.split(received)
        whole, way = context.token == 0, self.site.direction
        self.transcript.add(
            self.site.cut,
            kind,
            way if kind is Kind.ACTIVATION else way.reverse,
            rows,
            spans=context.spans,
            prefill=whole,
            sizes=[filled(length, self.bucket) * size for length in lengths],
            distortion=None if received is sent else squared_error(context.split(sent), rows),
            filler=padding_cost(lengths, self.bucket) * size,
            places=places,
        )
        # what comes back to a client lies as it left: it knows the lengths
        if kind is Kind.ACTIVATION and whole and way is Direction.UP:
            self._record_layout(context)

    def _record_layout(self, context: StageContext) -> None:
        # the receiver rebuilds mask and positions from the lengths, unless positions have gaps
        layout, cut = context.layout, self.site.cut
        self.transcript.add(cut, Kind.LENGTHS, Direction.UP, list(layout.lengths[:, None]))
        if layout.positions is not None:
            rows = context.split(layout.positions)
            self.transcript.add(cut, Kind.POSITIONS, Direction.UP, rows)


class _Behind:
    """The layers behind a cut, where fewer tokens arrive than the model was given.

    They are told mask and positions of what arrives, in place of the model's own, to the end of a
    generation.

    Args:
        model: The whole model.
        start: The first of the layers.
    """

    def __init__(self, model: VisionLanguageModel, start: int) -> None:
        self.model, self.start = model, start
        self._told: dict[str, Any] | None = None
        self._mask: Tensor | None = None
        self._next: Tensor | None = None

    def place(self) -> list[torch.utils.hooks.RemovableHandle]:
        """Return hooks that tell the later layers; the first one is told by its caller."""
        return [
            layer.register_forward_pre_hook(self._tell, with_kwargs=True)
            for layer in self.model.decoder_layers[self.start + 1 :]
        ]

    def enter(self, prefill: bool) -> None:
        """Forget what was told of an earlier call, and of an earlier batch if this is a new one."""
        self._told = None
        if prefill:
            self._mask = self._next = None

    def begin(
        self, hidden: Tensor, layout: TokenLayout, cache: DynamicCache | None
    ) -> dict[str, Any]:
        """Return what to tell of the tokens that are left of a batch, ``[B, S, d]``."""
        positions = layout.position_ids
        self._mask = layout.mask
        self._next = (positions * layout.mask).amax(dim=1) + 1
        return self._tell_of(hidden, positions, cache)

    def go_on(self, hidden: Tensor, cache: DynamicCache | None) -> dict[str, Any] | None:
        """Return what to tell of one more token of each sample, if any were withdrawn before."""
        if self._mask is None or self._next is None:
            return None
        positions = self._next[:, None]
        self._mask = torch.cat((self._mask, torch.ones_like(positions)), dim=1)
        self._next = self._next + 1
        return self._tell_of(hidden, positions, cache)

    def _tell_of(
        self, hidden: Tensor, positions: Tensor, cache: DynamicCache | None
    ) -> dict[str, Any]:
        decoder: Any = self.model.language_model
        assert self._mask is not None
        self._told = layer_inputs(
            decoder.config, decoder.rotary_emb, hidden, self._mask, positions, cache, self.start
        )
        return self._told

    def _tell(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        return None if self._told is None else (args, {**kwargs, **self._told})


def find_llava(model: nn.Module) -> LlavaModel:
    """Return the module that sees tokens, mask and image at once, with or without adapters.

    Adapters call the outer model's `forward` directly, past its hooks; this one is always called.
    """
    return next(module for module in model.modules() if isinstance(module, LlavaModel))


def _left(layout: _Layout, kept: Sequence[Tensor]) -> _Layout:
    """Return a layout after tokens were dropped.

    Args:
        layout: That of the model's input.
        kept: For each row which of its real tokens are left, ``[T_i]`` ascending.
    """
    whole = layout.packed
    lengths = torch.tensor([len(row) for row in kept], device=layout.real.device)
    positions = None
    if whole.positions is not None:
        parts = torch.split(whole.positions, whole.lengths.tolist())
        positions = torch.cat(
            [own[row.to(own.device)] for own, row in zip(parts, kept, strict=True)]
        )
    left = TokenLayout(lengths, whole.side, positions)
    spans = tuple(
        (int((row < start).sum()), int((row < stop).sum()))
        for row, (start, stop) in zip(kept, layout.spans, strict=True)
    )
    gapped = None if positions is None else left.position_ids
    return _Layout(left.mask.bool(), spans, gapped, layout.prefill)


def _read_layout(kwargs: Mapping[str, Any], image_token: int) -> _Layout:
    tokens: Tensor = kwargs["input_ids"]
    width = tokens.shape[1]
    mask = kwargs.get("attention_mask")
    # a row that fills its batch is generated without a mask: the cache tells, not the mask
    cache = kwargs.get("cache")
    prefill = cache is None or cache.get_seq_length() == 0
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask[:, -width:].bool()
    spans = image_spans(tokens, real, image_token)
    return _Layout(real, spans, _gapped_positions(kwargs.get("position_ids"), real), prefill)


def image_spans(tokens: Tensor, real: Tensor, image_token: int) -> tuple[Span, ...]:
    """Return where the image lies among the real tokens of each row; (0, 0) where there is none.

    Args:
        tokens: Token ids, ``[B, S]``.
        real: Which of them are no padding, ``[B, S]`` bool.
        image_token: The id that stands for a visual token.
    """
    return tuple(
        _image_span(row[keep] == image_token) for row, keep in zip(tokens, real, strict=True)
    )


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
