"""`Crossing`: a cut in the decoder, where activations leave their owner and gradients return."""

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.models.llava.modeling_llava import LlavaModel

from qpriv.models.llava.forward_pass import Mode
from qpriv.models.llava.vision_language import VisionLanguageModel

from .behind import Behind
from .codecs import Codec
from .defence import Defence
from .ends import Ends
from .layout import PassingRows
from .recording import Recorder
from .stages import RandomKey, Site, StageContext, Stages, places_by_sample
from .transcript import Kind, Transcript


@dataclass(frozen=True)
class Arrived:
    """What arrived at the far end of a cut.

    Args:
        rows: Decoded tokens, one sample after another, ``[sum T_i, d]``.
        context: What the parties know of these rows.
        places: Indices of these rows among those before the cut; None if none were withdrawn.
    """

    rows: Tensor
    context: StageContext
    places: Tensor | None


class StoppedAtCut(Exception):
    """Raised after the layers before the cut have run, to stop the layers after it."""


class Crossing:
    """A cut before one decoder layer, open while used as a context manager.

    Without stages and with a lossless codec the hook only observes: loss and gradients are
    bit-equal to those of the model without it. Stages change tensors on their way. What crosses
    lies between ``encode`` and ``decode`` or, for gradients, between ``encode_gradient`` and
    ``decode_gradient``. The codec is applied to it, and the transcript records what the receiver
    reads.

    A crossing works in training, with gradient checkpointing (the hook is outside the recomputed
    part), in evaluation and in `generate`. Only `Channel` creates crossings.

    Args:
        model: The whole model, with or without LoRA.
        site: The decoder layer before which tensors cross, and the activations' direction.
        transcript: The transcript to record in.
        gradients: Record the gradients too.
        codec: Codec of activations and gradients; None sends them as computed.
        bucket: Pad messages to a multiple of this many tokens per sample.
        defence: The run's defence, or None.
        tap: An attacker's stages, which run after the defence's.
        key: Key of the first pass's random numbers; each later pass is the next micro-batch.
        mode: Mode of the passes; None takes the model's.
        stops: Raise `StoppedAtCut` instead of running the layers after the cut.
        asks: Ask the defence for the client's own loss terms.
        instead: What arrives in place of the current activations; it has already crossed.
        scale: Factor of the loss; gradients cross without it.
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
        self.model, self.site, self.codec = model, site, codec
        self.ends = Ends(defence, tap)
        self.gradients, self.key, self.mode = gradients, key, mode
        self.stops, self.asks, self.instead, self.scale = stops, asks, instead, scale
        self.arrived: Arrived | None = None
        """What arrived, if this cut stops the model."""
        self.terms: list[Tensor] = []
        """The client's own loss terms of the passes since they were last taken."""
        self._passes, self._token = 0, 0
        self._layout: PassingRows | None = None
        self._recorder = Recorder(transcript, site, codec, bucket)
        self._behind = Behind(model, site.cut)
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> Self:
        """Register the hooks."""
        entrance = find_llava(self.model)
        layer = self.model.decoder_layers[self.site.cut]
        self._handles = [
            entrance.register_forward_pre_hook(self._enter_model, with_kwargs=True),
            layer.register_forward_pre_hook(self._cross, with_kwargs=True),
        ]
        if self.ends.defence is not None:
            self._handles += self._behind.place()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._layout = [], None

    def _enter_model(self, module: LlavaModel, _: object, kwargs: dict[str, Any]) -> None:
        # a policy may drop tokens in the layers before the cut
        entering = self.model.entering(self.site.cut, kwargs)
        self._layout = layout = PassingRows.read(entering, module.config.image_token_id)
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
        elif self.ends.idle and lossless:
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

    def _look(self, hidden: Tensor, layout: PassingRows) -> None:
        """Record activations and gradients that pass unchanged."""
        real, context = layout.real.to(hidden.device), self._context(layout)
        rows, left = hidden[real], self._left_of_client(context)
        self._recorder.record(Kind.ACTIVATION, rows, rows, context, left)
        if not hidden.requires_grad or not self.gradients:
            return

        def watch(gradient: Tensor) -> None:
            returned = self._unscaled(gradient[real])
            self._recorder.record(Kind.GRADIENT, returned, returned, context, left)

        hidden.register_hook(watch)  # type: ignore[no-untyped-call]

    def _send(
        self, hidden: Tensor, layout: PassingRows, cache: DynamicCache | None
    ) -> tuple[Tensor, dict[str, Any] | None]:
        """Send activations; return the hidden states after the cut, and new layer inputs."""
        real = layout.real.to(hidden.device)
        crossed, context, places = self.ends.encode(hidden[real], self._context(layout))
        # a separate graph node, so that the gradient of the client's own term does not cross
        sent = crossed.view_as(crossed) if self._add_term(crossed, context) else crossed
        received = sent if self.codec is None else self.codec.through(sent)
        if places is not None:
            self._note_withdrawal(places, context, real)
        self._recorder.record(
            Kind.ACTIVATION, sent, received, context, self._left_of_client(context)
        )
        self._watch_gradient(sent, context)
        arrived = Arrived(self.ends.decode(received, context), context, places)
        if self.stops:
            self.arrived = arrived
        return self._lay_out(arrived, real, cache)

    def _receive(
        self, arrived: Arrived, layout: PassingRows, cache: DynamicCache | None
    ) -> tuple[Tensor, dict[str, Any] | None]:
        """Return hidden states and layer inputs for activations that crossed before."""
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
        """Collect the client's own loss term if requested; return whether there is one."""
        term = self.ends.term(crossed, context) if self.asks else None
        self.terms += [] if term is None else [term]
        return term is not None

    def _watch_gradient(self, sent: Tensor, context: StageContext) -> None:
        left = self._left_of_client(context)
        lossless = self.codec is None or self.codec.keeps(sent.dtype)
        changed = self.ends.change_gradients(context) or not lossless
        if not sent.requires_grad or not (self.gradients or changed):
            return

        def turn_back(gradient: Tensor) -> Tensor | None:
            own = self._unscaled(gradient)
            returned = self.ends.encode_gradient(own, context)
            received = returned if self.codec is None else self.codec.round_trip(returned)
            if self.gradients:
                self._recorder.record(Kind.GRADIENT, returned, received, context, left)
            received = self.ends.decode_gradient(received, context)
            if received is own:
                return None
            return received if self.scale == 1 else received * self.scale

        sent.register_hook(turn_back)  # type: ignore[no-untyped-call]

    def _unscaled(self, gradient: Tensor) -> Tensor:
        return gradient if self.scale == 1 else gradient / self.scale

    def _mode(self) -> Mode:
        current = self.model.under_way
        if self.mode is not None:
            return self.mode
        if current is not None:
            return current.mode
        return "train" if self.model.training else "evaluate"

    def _context(self, layout: PassingRows) -> StageContext:
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

    def _layout_here(self) -> PassingRows:
        """Return the layout at this depth, without the tokens dropped at earlier cuts."""
        layout, current = self._layout, self.model.under_way
        if layout is None:
            raise RuntimeError("a decoder layer ran without its model: call the whole model")
        if current is None or current.kept is None or not layout.prefill:
            return layout
        return layout.left(current.kept)

    def _note_withdrawal(self, places: Tensor, context: StageContext, real: Tensor) -> None:
        current = self.model.under_way
        if current is None:
            raise RuntimeError("rows are withdrawn, and nobody has said of which samples")
        current.keep(places_by_sample(places, real.sum(dim=1), context))

    def _left_of_client(self, context: StageContext) -> tuple[Tensor, ...]:
        """Return the indices of the client's tokens left at the cut; empty if all are left."""
        current = self.model.under_way
        return () if current is None or context.token else current.kept or ()


def find_llava(model: nn.Module) -> LlavaModel:
    """Return the module that receives tokens, mask and image, with or without adapters.

    Adapters call the outer model's `forward` directly and so skip its hooks. Hooks on this module
    always run.
    """
    return next(module for module in model.modules() if isinstance(module, LlavaModel))
