"""`Recorder`: records what crosses a cut, with its size on the wire."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from .codecs import Codec, native, squared_error
from .padding import filled, padding_cost
from .stages import Site, StageContext
from .transcript import Direction, Kind, Transcript


@dataclass(frozen=True)
class Recorder:
    """Records what crosses a cut in a transcript.

    Args:
        transcript: The transcript to record in.
        site: The cut.
        codec: Codec of activations and gradients; None sends them as computed.
        bucket: Messages are padded to a multiple of this many tokens per sample.
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
            kind: Activations or gradients.
            sent: Rows before the codec, ``[sum T_i, w]``.
            received: Rows after the codec, as the receiver reads them.
            context: The parties' context of these rows.
            places: Indices of the rows among the client's tokens, per sample; empty if all cross.
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
        # returning tensors keep the layout that the client already knows
        if kind is Kind.ACTIVATION and whole and way is Direction.UP:
            self._record_layout(context)

    def _record_layout(self, context: StageContext) -> None:
        # the receiver derives mask and positions from the lengths, unless positions have gaps
        layout, cut = context.layout, self.site.cut
        self.transcript.add(cut, Kind.LENGTHS, Direction.UP, list(layout.lengths[:, None]))
        if layout.positions is not None:
            rows = context.split(layout.positions)
            self.transcript.add(cut, Kind.POSITIONS, Direction.UP, rows)
