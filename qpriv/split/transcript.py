"""`Transcript`: what crossed between parties; attacks read nothing else of the victim."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from torch import Tensor

Span = tuple[int, int]
"""Index of a row's first image token, and one past its last."""


class Kind(StrEnum):
    """The content of a message; each kind is counted separately.

    ``lengths`` (8 bytes per sample) determine the attention mask. ``labels`` take 4 bytes per real
    token. A ``scalar`` (8 bytes) is a loss, a token count or a squared gradient norm. ``adapter``
    and ``optimizer`` are LoRA weights and their optimiser moments.
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
    """``up``: client to server; ``down``: server to client; ``across``: client to client."""

    UP = "up"
    DOWN = "down"
    ACROSS = "across"

    @property
    def reverse(self) -> "Direction":
        """Return the opposite direction."""
        opposite = {Direction.UP: Direction.DOWN, Direction.DOWN: Direction.UP}
        return opposite.get(self, self)


@dataclass(frozen=True)
class CrossingRecord:
    """One batch of one kind that crossed one cut.

    Args:
        cut: Decoder layer before which it crossed.
        kind: Kind of content.
        direction: Direction in which it crossed.
        rows: Real (unpadded) tokens of each sample, ``[T_i, d]``; empty if only bytes are counted.
        spans: Span of the image tokens of each row; empty if unknown.
        sizes: Exact bytes on the wire of each row, encoded and padded.
        prefill: False for single tokens that a generation sends after its first pass.
        client: The client that sent or received it.
        names: Weight name of each row; empty for rows of tokens.
        distortion: Squared norms of a lossy codec's error and of its input.
        filler: Bytes of padding among all bytes.
        places: Indices of the client's tokens that crossed, ``[T_i]`` per row; empty if all did.
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
        """Return the exact size in bytes."""
        return sum(self.sizes)


@dataclass
class Transcript:
    """Everything that crossed, in order.

    A forward pass sends ``(k + T) * d * b`` bytes of activations per sample (``k`` kept image
    tokens, ``T`` text tokens, width ``d``, ``b`` bytes per number); its backward pass sends as
    many bytes of gradients.

    Args:
        store: Keep the tensors on the CPU; if False, keep only sizes.
        messages: The records so far.
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
        """Append one record; see `CrossingRecord` for the arguments.

        The tensors are copied to the CPU and detached. ``sizes`` must be given if the rows crossed
        in another form than the tensors; by default they are the tensors' bytes.
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
        """Return the bytes that crossed, of one kind or direction or in total."""
        return sum(
            message.num_bytes
            for message in self.messages
            if kind in (None, message.kind) and direction in (None, message.direction)
        )

    def select(self, cut: int, kind: Kind = Kind.ACTIVATION) -> list[CrossingRecord]:
        """Return the records of one kind at one cut, without single generated tokens."""
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
