"""`Traffic`: bytes that crossed, by kind and direction, summed over transcripts."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from math import sqrt

from qpriv.quantity import Quantity

from .transcript import Direction, Kind, Transcript

SENT = {
    Direction.UP: Quantity(
        name="bytes_up",
        title="Bytes up",
        meaning="What a training sample sends to the server, all kinds together.",
        unit="bytes",
        logged="val/bytes_up",
    ),
    Direction.DOWN: Quantity(
        name="bytes_down",
        title="Bytes down",
        meaning="What a training sample gets back.",
        unit="bytes",
        logged="val/bytes_down",
    ),
}
"""Bytes per sample that crossed in training."""

PADDING = Quantity(
    name="bytes_padding",
    title="Of them padding",
    meaning="What of both only hides how many tokens were kept.",
    unit="bytes",
)
WHOLE = Quantity(
    name="bytes_epoch",
    title="Bytes an epoch",
    meaning="Up and down together, over all training samples.",
    unit="bytes",
)
PASSED = {
    Direction.UP: Quantity(
        name="forward_bytes_up",
        title="Bytes of a pass, up",
        meaning="Activations that would go up at the cut in one forward pass of a question.",
        unit="bytes",
        logged="val/forward_bytes_up",
    ),
    Direction.DOWN: Quantity(
        name="forward_bytes_down",
        title="Bytes of a pass, down",
        meaning="Activations that would come back at the second cut in that pass.",
        unit="bytes",
        logged="val/forward_bytes_down",
    ),
}
"""Bytes that would cross in one pass of a run without parties."""

EXCHANGED = {
    Direction.UP: Quantity(
        name="activation_bytes_up",
        title="Activations up",
        meaning="Activations of a private scene that cross the cuts in training, or would.",
        unit="bytes",
    ),
    Direction.DOWN: Quantity(
        name="activation_bytes_down",
        title="Gradients down",
        meaning="Gradients of these activations, which come back.",
        unit="bytes",
    ),
}
"""Bytes that cross for a private scene, as `SensitivityProbe` counts them."""


class Traffic:
    """Exact byte counts and errors of lossy codecs, over a step, a round or an epoch.

    >>> import torch
    >>> transcript = Transcript(store=False)
    >>> transcript.add(4, Kind.ACTIVATION, Direction.UP, [torch.zeros(3, 8)])
    >>> traffic = Traffic()
    >>> traffic.add(transcript, samples=1)
    >>> traffic.num_bytes(direction=Direction.UP), traffic.by_kind()
    (96, {'activation/up': 96})
    """

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()
        self._lost: defaultdict[str, float] = defaultdict(float)
        self._sent: defaultdict[str, float] = defaultdict(float)
        self._filler: Counter[str] = Counter()
        self.samples = 0

    def add(self, transcript: Transcript, samples: int) -> None:
        """Add a transcript of a number of samples."""
        self.samples += samples
        # plain strings, because ``weights_only=True`` cannot load enum members
        for message in transcript.messages:
            self._bytes[f"{message.kind}/{message.direction}"] += message.num_bytes
            self._filler[str(message.direction)] += message.filler
            if message.distortion is not None:
                self._lost[str(message.kind)] += message.distortion[0]
                self._sent[str(message.kind)] += message.distortion[1]

    def num_bytes(self, *, kind: Kind | None = None, direction: Direction | None = None) -> int:
        """Return the bytes of one kind or direction, or of all."""
        return sum(
            size
            for key, size in self._bytes.items()
            if (kind is None or key.startswith(f"{kind}/"))
            and (direction is None or key.endswith(f"/{direction}"))
        )

    def filler(self) -> int:
        """Return the bytes of padding among all bytes."""
        return self._filler.total()

    def by_kind(self) -> dict[str, int]:
        """Return the bytes by ``kind/direction``."""
        return dict(sorted(self._bytes.items()))

    def codec_error(self) -> dict[str, float]:
        """Return the relative root mean square error of the decoded tensors, by kind.

        It is empty if no codec was lossy.
        """
        return {
            kind: sqrt(self._lost[kind] / sent) if sent else 0.0
            for kind, sent in sorted(self._sent.items())
        }

    def state(self) -> dict[str, dict[str, float]]:
        """Return the counts as plain numbers, for a checkpoint."""
        return {
            "bytes": dict(self._bytes),
            "lost": dict(self._lost),
            "sent": dict(self._sent),
            "filler": dict(self._filler),
            "samples": {"": self.samples},
        }

    def load(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Restore what `state` returned."""
        self._bytes = Counter({key: int(size) for key, size in state["bytes"].items()})
        self._lost = defaultdict(float, state["lost"])
        self._sent = defaultdict(float, state["sent"])
        self._filler = Counter({way: int(size) for way, size in state.get("filler", {}).items()})
        self.samples = int(state["samples"][""])
