"""`Channel`: the cuts between the parties of a run, for training and for attacks."""

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
        direction: Direction of the activations; gradients go in the opposite direction.
    """

    layer: int
    direction: Direction


@dataclass(frozen=True)
class Open:
    """An open channel: the transcript so far, and the client's own loss terms.

    Args:
        transcript: Everything that has crossed.
        crossings: The open cuts.
    """

    transcript: Transcript
    crossings: tuple[Crossing, ...]

    @property
    def arrived(self) -> Arrived:
        """Return what arrived at the cut that stopped the model.

        Raises:
            RuntimeError: If nothing has arrived.
        """
        for crossing in self.crossings:
            if crossing.arrived is not None:
                return crossing.arrived
        raise RuntimeError("nothing has come to a cut that stops the model")

    def take_terms(self) -> list[Tensor]:
        """Return the client's own loss terms since the last call."""
        terms = [term for crossing in self.crossings for term in crossing.terms]
        for crossing in self.crossings:
            crossing.terms.clear()
        return terms


@dataclass(frozen=True)
class Channel:
    """The cuts of a run, with the codec and the defence that act on them.

    The paradigm owns the channel. Training steps `open` it; attacks and byte counts `record` it.
    Both use the same cuts, so an attacker reads what training sends. At a single cut, activations
    go up. At two cuts (a U-shaped split) they go up at the first and down at the second. More
    than two cuts are alternatives to compare, each as a single cut.

    Args:
        layers: Decoder layers before which tensors cross, ascending.
        codec: Codec of activations and gradients; None sends them as computed.
        bucket: Pad messages to a multiple of this many tokens per sample.
        defence: Defence that the parties apply to what crosses; None is none.
        labels_cross: Whether the server gets the answers and computes the loss.
        paradigm: Name of the paradigm that owns the channel.
        hypothetical: Whether the run has no such channel; results then describe what would cross.
        taps: An attacker's additional stages at a cut, by its layer.

    Raises:
        ConfigError: If the cuts do not ascend, or the bucket is below 1.

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
        """Check the settings that do not depend on the model."""
        check_bucket(self.bucket)
        if list(self.layers) != sorted(set(self.layers)) or min(self.layers, default=0) < 0:
            raise ConfigError(f"cuts are {list(self.layers)}", remedy="give layers, ascending")

    @classmethod
    def supposed(cls, layers: Sequence[int], paradigm: str = "centralized") -> Self:
        """Return a hypothetical channel with the given cuts and no codec."""
        given = tuple(layers)
        return cls(given, labels_cross=len(given) < 2, paradigm=paradigm, hypothetical=True)

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Return the cuts with the direction of the activations."""
        ways = [Direction.UP] * len(self.layers)
        if len(self.layers) == 2:
            ways[1] = Direction.DOWN
        return tuple(Cut(layer, way) for layer, way in zip(self.layers, ways, strict=True))

    @property
    def label(self) -> str:
        """Return the name in results, without the defence (see `defence_label`)."""
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
        """Check the cuts against a model.

        Raises:
            ConfigError: If the model has no such decoder layer.
        """
        for layer in self.layers:
            if layer >= model.num_layers:
                raise ConfigError(
                    f"cut is {layer}",
                    remedy=f"the model has decoder layers 0 to {model.num_layers - 1}",
                )

    def tapped(self, layer: int, stages: Stages) -> Self:
        """Return the channel with an attacker's stages at one of its cuts.

        These run after the defence's stages at the same end, and before the codec.

        Raises:
            ConfigError: If there is no such cut.
        """
        self._require(layer)
        return replace(self, taps={**self.taps, layer: stages})

    def with_bucket(self, bucket: int) -> Self:
        """Return the channel with another bucket; a changed bucket makes it hypothetical."""
        other = bucket != self.bucket
        return replace(self, bucket=bucket, hypothetical=self.hypothetical or other)

    def at_entrance(self) -> Self:
        """Return a channel with the same sizes before the first layer, so that no layer runs.

        Sizes are the same at every cut, unless a defence changes what crosses. With a defence,
        this method returns the channel itself.
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
        """Open the cuts: the model computes across them, and the transcript counts what crosses.

        Args:
            model: The whole model, with or without LoRA.
            gradients: Count the gradients too.
            store: Keep the tensors, not only their sizes.
            key: Key of the random numbers. The first pass is its micro-batch, and each later pass
                is the next one.
            mode: Mode of the passes; None takes the model's.
            stop: Cut after which no layer runs: `StoppedAtCut` is raised there.
            terms: Ask the defence for the client's own loss terms; see `Open.take_terms`.
            instead: What arrives after the first cut in place of the current activations. It
                crossed and was counted in an earlier pass that stopped there.
            scale: Factor of the loss, and so of every gradient. Gradients cross without it, so
                the defence, the codec and the transcript see unscaled gradients.

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
            store: Keep the tensors, not only their sizes.
            key: As in `open`.
            mode: Mode in which the parties' stages run, whatever the model's mode is; None takes
                the model's.
            stop: As in `open`.
        """
        with self.open(
            model, gradients=gradients, store=store, key=key, mode=mode, stop=stop
        ) as opened:
            yield opened.transcript

    @torch.no_grad()
    def activation_bytes(self, model: VisionLanguageModel, inputs: PreparedInputs) -> Tensor:
        """Return the bytes of each sample's activations over all cuts, ``[B]`` int64.

        The gradients take as many bytes. The model runs only if a defence decides from the
        activations which tokens cross.
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
    """Run a model whose channel is open with ``stop``, and absorb `StoppedAtCut`.

    Raises:
        RuntimeError: If the model never reaches its cut.
    """
    try:
        yield
    except StoppedAtCut:
        return
    raise RuntimeError("the model never reached its cut")
