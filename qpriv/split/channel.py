"""`Channel`: what crosses between the parties of a run, for those who train and those who attack."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from qpriv.errors import ConfigError
from qpriv.models.llava.forward_pass import Mode
from qpriv.models.llava.prepared import PreparedInputs
from qpriv.models.llava.vision_language import VisionLanguageModel

from .codecs import Codec, native
from .crossing import Arrived, Crossing, StoppedAtCut
from .defence import Defence
from .ends import Ends
from .padding import check_bucket, filled
from .stages import RandomKey, Site, Stages
from .transcript import Direction, Transcript


@dataclass(frozen=True)
class Cut:
    """A place where tensors leave their owner.

    Args:
        layer: The decoder layer before which they cross; 0 is right after the projector.
        direction: Which way the activations go; gradients go the other way.
    """

    layer: int
    direction: Direction


@dataclass(frozen=True)
class Open:
    """An open channel: what has crossed so far, and what the client owes itself.

    Args:
        transcript: Everything that crossed.
        crossings: The cuts.
    """

    transcript: Transcript
    crossings: tuple[Crossing, ...]

    @property
    def arrived(self) -> Arrived:
        """Return what has come behind the cut that stopped the model.

        Raises:
            RuntimeError: If nothing has.
        """
        for crossing in self.crossings:
            if crossing.arrived is not None:
                return crossing.arrived
        raise RuntimeError("nothing has come to a cut that stops the model")

    def take_terms(self) -> list[Tensor]:
        """Return the terms for the client's own gradient since the last call."""
        terms = [term for crossing in self.crossings for term in crossing.terms]
        for crossing in self.crossings:
            crossing.terms.clear()
        return terms


@dataclass(frozen=True)
class Channel:
    """The cuts of a run, how numbers cross them, and what a defence does to them.

    The paradigm owns it. Training steps `open` it, attacks and byte counts `record` it: both cross
    the same cuts, so what an attacker reads is what was trained with. Of one cut, activations go
    up; of two, they go up at the first and come down at the second one (a U-shaped split). More
    than two are places of one cut each, to be compared.

    Args:
        layers: Decoder layers before which tensors cross, ascending.
        codec: How numbers are written for the wire; None writes them as they are computed.
        bucket: Messages are filled to a multiple of so many tokens a sample.
        defence: What the parties do to what crosses; None is nothing.
        labels_cross: Whether the server is told the answers and computes the loss.
        paradigm: Name of the paradigm that owns it.
        hypothetical: Whether the run has no such channel, and figures say what would cross.
        taps: What an attacker does at a cut besides, by its layer.

    Raises:
        ConfigError: If the cuts do not ascend, or the bucket holds no token.

    >>> Channel((4,)).label, Channel((2, 6), bucket=16).label, Channel.supposed((4,)).label
    ('up@4', 'up@2+down@6/bucket16', 'hypothetical:up@4')
    """

    layers: tuple[int, ...]
    codec: Codec | None = None
    bucket: int = 1
    defence: Defence | None = None
    labels_cross: bool = True
    paradigm: str = "centralized"
    hypothetical: bool = False
    taps: Mapping[int, Stages] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what does not depend on the model."""
        check_bucket(self.bucket)
        if list(self.layers) != sorted(set(self.layers)) or min(self.layers, default=0) < 0:
            raise ConfigError(f"cuts are {list(self.layers)}", remedy="give layers, ascending")

    @classmethod
    def supposed(cls, layers: Sequence[int], paradigm: str = "centralized") -> Self:
        """Return a channel that a run does not have: cuts somebody asks for, without codec."""
        given = tuple(layers)
        return cls(given, labels_cross=len(given) < 2, paradigm=paradigm, hypothetical=True)

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Return the cuts with the way that activations take."""
        ways = [Direction.UP] * len(self.layers)
        if len(self.layers) == 2:
            ways[1] = Direction.DOWN
        return tuple(Cut(layer, way) for layer, way in zip(self.layers, ways, strict=True))

    @property
    def label(self) -> str:
        """Return its name in results, without the defence, which has a name of its own."""
        if not self.layers:
            return ""
        parts = ["+".join(f"{cut.direction}@{cut.layer}" for cut in self.cuts)]
        parts += [self.codec.name] if self.codec else []
        parts += [f"bucket{self.bucket}"] if self.bucket > 1 else []
        return ("hypothetical:" if self.hypothetical else "") + "/".join(parts)

    @property
    def defence_label(self) -> str:
        """Return the name of the defence in results."""
        return "none" if self.defence is None else self.defence.label

    def check(self, model: VisionLanguageModel) -> None:
        """Refuse cuts that a model does not have.

        Raises:
            ConfigError: If there is no such decoder layer.
        """
        for layer in self.layers:
            if layer >= model.num_layers:
                raise ConfigError(
                    f"cut is {layer}",
                    remedy=f"the model has decoder layers 0 to {model.num_layers - 1}",
                )

    def tapped(self, layer: int, stages: Stages) -> Self:
        """Return the channel with an attacker's hand on one of its cuts.

        Its stages run after the defence's own of the same end, before the codec.

        Raises:
            ConfigError: If there is no such cut.
        """
        self._require(layer)
        return replace(self, taps={**self.taps, layer: stages})

    def with_bucket(self, bucket: int) -> Self:
        """Return the channel with messages of another size: hypothetical, unless it is its own."""
        other = bucket != self.bucket
        return replace(self, bucket=bucket, hypothetical=self.hypothetical or other)

    def at_entrance(self) -> Self:
        """Return a channel of the same sizes before the first layer, so that no layer need run.

        Sizes are the same at every cut, unless a defence changes what crosses: then it is the
        same channel.
        """
        if self.defence is not None:
            return self
        return replace(self, layers=(0,), taps={})

    @contextmanager
    def open(
        self,
        model: VisionLanguageModel,
        *,
        gradients: bool = False,
        store: bool = False,
        key: RandomKey | None = None,
        mode: Mode | None = None,
        stop: int | None = None,
        terms: bool = False,
        instead: Arrived | None = None,
        scale: float = 1.0,
    ) -> Iterator[Open]:
        """Let a model compute across the cuts; what crosses is counted.

        Args:
            model: The whole model, with or without LoRA.
            gradients: Count the gradients too.
            store: Keep the tensors, and not only their sizes.
            key: What random numbers depend on: the first pass is this micro-batch, each later
                one the next.
            mode: What the passes are for; None is what the model says.
            stop: Cut behind which no layer runs: `StoppedAtCut` is raised there.
            terms: Ask the defence for the terms of the client's own gradient; see
                `Open.take_terms`.
            instead: What arrives behind the first cut in place of what would cross it now: it has
                crossed, and was counted, in an earlier pass that stopped there.
            scale: By what the loss, and so every gradient, is multiplied. Gradients cross without
                it: a defence, a codec and whoever records see them as they are.

        Raises:
            ConfigError: If the model has no such layer, or the channel no such cut.
        """
        self.check(model)
        if stop is not None:
            self._require(stop)
        key = key or RandomKey()
        transcript = Transcript(store=store, client=key.client)
        crossings = tuple(
            Crossing(
                model,
                Site(cut.layer, cut.direction, model.hidden_size),
                transcript,
                gradients=gradients,
                codec=self.codec,
                bucket=self.bucket,
                defence=self.defence,
                tap=self.taps.get(cut.layer, Stages()),
                key=key,
                mode=mode,
                stops=cut.layer == stop,
                asks=terms,
                instead=instead if cut.layer == self.layers[0] else None,
                scale=scale,
            )
            for cut in self.cuts
        )
        with ExitStack() as stack:
            for crossing in crossings:
                stack.enter_context(crossing)
            yield Open(transcript, crossings)

    @contextmanager
    def record(
        self,
        model: VisionLanguageModel,
        *,
        gradients: bool = False,
        store: bool = True,
        key: RandomKey | None = None,
        mode: Mode | None = "train",
        stop: int | None = None,
    ) -> Iterator[Transcript]:
        """Record what a training step would send, for attacks and byte counts.

        Args:
            model: The whole model, with or without LoRA.
            gradients: Record the gradients too.
            store: Keep the tensors, and not only their sizes.
            key: As in `open`.
            mode: For what kind of pass the parties' stages run, whatever mode the model is in;
                None is what the model says.
            stop: As in `open`.
        """
        with self.open(
            model, gradients=gradients, store=store, key=key, mode=mode, stop=stop
        ) as opened:
            yield opened.transcript

    @torch.no_grad()
    def activation_bytes(self, model: VisionLanguageModel, inputs: PreparedInputs) -> Tensor:
        """Return the size of each sample's activations at all cuts together, ``[B]`` int64.

        As many bytes of gradients come back. Nothing runs for it, unless a defence decides from
        the activations which tokens cross.
        """
        if self.defence is None or not self.defence.withdraws:
            dtype = next(model.language_model.parameters()).dtype
            sizes = [
                [self.message_bytes(count, model.hidden_size, dtype) for count in counts]
                for counts in (
                    inputs.answered.at(layer).attention_mask.sum(dim=1).tolist()
                    for layer in self.layers
                )
            ]
            return torch.tensor(sizes).sum(dim=0)
        with self.record(model, store=False, stop=self.layers[-1]) as transcript, stopped():
            model(inputs)
        sent = [message.sizes for layer in self.layers for message in transcript.select(layer)]
        return torch.tensor(sent).sum(dim=0)

    def message_bytes(self, tokens: int, width: int, dtype: torch.dtype) -> int:
        """Return the size of one sample's activations at one cut, filled up to the bucket.

        Args:
            tokens: Real tokens that cross.
            width: Width of the decoder.
            dtype: Type that is written as it is where there is no codec.
        """
        return filled(tokens, self.bucket) * self.token_bytes(width, dtype)

    def token_bytes(self, width: int, dtype: torch.dtype) -> int:
        """Return the size of one token that crosses; see `message_bytes`."""
        crossing = Ends(self.defence).width(width, "train")
        return (self.codec or native(dtype)).token_bytes(crossing)

    def _require(self, layer: int) -> None:
        if layer not in self.layers:
            raise ConfigError(f"there is no cut {layer}", remedy=f"cuts are {list(self.layers)}")


@contextmanager
def stopped() -> Iterator[None]:
    """Call a model inside whose channel is recorded with ``stop``.

    Raises:
        RuntimeError: If the model never comes to its cut.
    """
    try:
        yield
    except StoppedAtCut:
        return
    raise RuntimeError("the model never reached its cut")
