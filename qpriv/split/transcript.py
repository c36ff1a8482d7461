"""`Transcript`: what one party saw of another. Attacks read this and nothing else of the victim."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from torch import Tensor

Span = tuple[int, int]
"""First image token of a row and the one after the last."""


class Kind(StrEnum):
    """What a message holds; each kind is counted on its own.

    ``lengths`` (8 bytes a sample) stands for the attention mask, which it determines. ``labels``
    are 4 bytes a real token. ``scalar`` is a loss, a token count or a squared gradient norm, 8
    bytes each. ``adapter`` and ``optimizer`` are LoRA weights and the moments that go with them.
    """

    ACTIVATION = "activation"
    GRADIENT = "gradient"
    LABELS = "labels"
    LENGTHS = "lengths"
    POSITIONS = "positions"
    ADAPTER = "adapter"
    OPTIMIZER = "optimizer"
    SCALAR = "scalar"


class Direction(StrEnum):
    """``up`` goes from the client to the server, ``down`` comes back, ``across`` to a client."""

    UP = "up"
    DOWN = "down"
    ACROSS = "across"

    @property
    def reverse(self) -> "Direction":
        """Return the way back."""
        opposite = {Direction.UP: Direction.DOWN, Direction.DOWN: Direction.UP}
        return opposite.get(self, self)


@dataclass(frozen=True)
class CrossingRecord:
    """One batch of one kind that crossed one cut.

    Args:
        cut: Decoder layer before which it crossed.
        kind: What it holds.
        direction: Which way it went.
        rows: For each sample the real (unpadded) tokens, ``[T_i, d]``; empty where only bytes
            were counted.
        spans: For each row where the image tokens lie; empty where unknown.
        sizes: Exact size in bytes of what crossed for each row, in its encoded and filled form.
        prefill: False for the single tokens of a generation after its first pass.
        client: The client at the other end.
        names: For each row the weight it belongs to; empty for rows of tokens.
        distortion: Sums of squares of what a lossy codec lost and of what it was given.
        filler: How many of the bytes nobody reads: they fill samples up to a bucket.
        places: For each row which of the client's tokens crossed, ``[T_i]``; empty where all did.
    """

    cut: int
    kind: Kind
    direction: Direction
    rows: tuple[Tensor, ...]
    spans: tuple[Span, ...] = ()
    sizes: tuple[int, ...] = ()
    prefill: bool = True
    client: int = 0
    names: tuple[str, ...] = ()
    distortion: tuple[float, float] | None = None
    filler: int = 0
    places: tuple[Tensor, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Return the exact size of what crossed."""
        return sum(self.sizes)


@dataclass
class Transcript:
    """Everything that crossed, in order.

    A forward pass sends ``(k + T) * d * b`` bytes of activations a sample (``k`` kept image
    tokens, ``T`` text tokens, width ``d``, ``b`` bytes a number), its backward pass as much.

    Args:
        store: Keep the tensors on the CPU; without it only sizes are kept.
        client: The client whose messages are added.

    >>> import torch
    >>> transcript = Transcript()
    >>> transcript.add(4, Kind.ACTIVATION, Direction.UP, [torch.zeros(3, 8), torch.zeros(5, 8)])
    >>> transcript.num_bytes(direction=Direction.UP)
    256
    """

    store: bool = True
    messages: list[CrossingRecord] = field(default_factory=list)
    client: int = 0

    def add(
        self,
        cut: int,
        kind: Kind,
        direction: Direction,
        rows: Sequence[Tensor],
        *,
        spans: Sequence[Span] = (),
        prefill: bool = True,
        names: Sequence[str] = (),
        sizes: Sequence[int] | None = None,
        distortion: tuple[float, float] | None = None,
        filler: int = 0,
        places: Sequence[Tensor] = (),
    ) -> None:
        """Append one message; the tensors are copied to the CPU without their graph.

        ``sizes`` are given where the rows crossed in another form than that of the tensors.
        """
        plain = [row.numel() * row.element_size() for row in rows]
        self.messages.append(
            CrossingRecord(
                cut,
                kind,
                direction,
                self._copies(rows),
                tuple(spans),
                tuple(plain if sizes is None else sizes),
                prefill,
                self.client,
                tuple(names),
                distortion,
                filler,
                self._copies(places),
            )
        )

    def _copies(self, rows: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(row.detach().to("cpu", copy=True) for row in rows) if self.store else ()

    def weights(self, kind: Kind = Kind.ADAPTER) -> list[dict[str, Tensor]]:
        """Return the sets of named weights that crossed, such as the updates of a round."""
        chosen = [message for message in self.messages if message.kind == kind]
        return [dict(zip(message.names, message.rows, strict=True)) for message in chosen]

    def num_bytes(self, *, kind: Kind | None = None, direction: Direction | None = None) -> int:
        """Return how many bytes crossed, of one kind or direction or in all."""
        return sum(
            message.num_bytes
            for message in self.messages
            if kind in (None, message.kind) and direction in (None, message.direction)
        )

    def select(self, cut: int, kind: Kind = Kind.ACTIVATION) -> list[CrossingRecord]:
        """Return the whole passes of one kind at one cut; single generated tokens are left out."""
        return [m for m in self.messages if m.cut == cut and m.kind == kind and m.prefill]

    def rows(self, cut: int, kind: Kind = Kind.ACTIVATION) -> list[Tensor]:
        """Return the tokens of every sample in order, each ``[T_i, d]``."""
        return [row for message in self.select(cut, kind) for row in message.rows]

    def image_rows(self, cut: int, kind: Kind = Kind.ACTIVATION) -> list[Tensor]:
        """Return the image tokens of every sample in order, each ``[k_i, d]``."""
        return [
            row[start:stop]
            for message in self.select(cut, kind)
            for row, (start, stop) in zip(message.rows, message.spans, strict=True)
        ]

    def text_rows(self, cut: int, kind: Kind = Kind.ACTIVATION) -> list[Tensor]:
        """Return the tokens after the image of every sample in order, each ``[T_i, d]``."""
        return [
            row[stop:]
            for message in self.select(cut, kind)
            for row, (_, stop) in zip(message.rows, message.spans, strict=True)
        ]
