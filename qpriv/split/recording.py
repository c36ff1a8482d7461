"""`Recorder`: writes down what crosses one cut, in the size that it has on the wire."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from .codecs import Codec, native, squared_error
from .padding import filled, padding_cost
from .stages import Site, StageContext
from .transcript import Direction, Kind, Transcript


@dataclass(frozen=True)
class Recorder:
    """Keeps what crosses a cut in a transcript.

    Args:
        transcript: Where to record.
        site: The cut.
        codec: How numbers are written for the wire; None writes them as they are computed.
        bucket: Messages are filled to a multiple of so many tokens a sample.
    """

    transcript: Transcript
    site: Site
    codec: Codec | None
    bucket: int

    def record(
        self,
        kind: Kind,
        sent: Tensor,
        received: Tensor,
        context: StageContext,
        places: Sequence[Tensor],
    ) -> None:
        """Record activations or gradients.

        Args:
            kind: Which of the two they are.
            sent: What the sender gave to the codec, ``[sum T_i, w]``.
            received: What the receiver reads.
            context: What the parties know of them.
            places: For each sample which of the client's tokens they are; empty where all are.
        """
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
