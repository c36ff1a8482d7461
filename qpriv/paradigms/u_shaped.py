"""U-shaped split learning: images, questions, labels and answers stay with the client."""

from qpriv.split import CodecName

from .partition import PartitionName
from .split_base import Schedule, SplitParadigm


class UShapedSplit(SplitParadigm):
    """Clients own embeddings, projector, the first and the last layers, and the LM head.

    The server owns the body between two cuts. It sees the activations that enter the body and the
    gradients that return into it, but no image, question, label or logit (Vepakomma et al. 2018,
    arXiv:1812.00564, figure 2b). Every client has its own adapter for head and tail, with its own
    optimiser state. All clients share the adapter of the body.

    Args:
        cuts: First layer of the body, and first layer of the tail; null is a quarter and three
            quarters of the depth (8 and 24 of 32).
        num_clients: Number of clients.
        codec: Codec of activations and gradients; null sends them as computed.
        bucket: Pad messages to a multiple of this many tokens per sample.
        partition: How images are dealt to the clients.
        concentration: Concentration of ``dirichlet``; smaller values make shards less alike.
        schedule: ``in_turn`` takes one step of the server per client; ``together`` takes one step
            of the server for all clients, which a defence that joins their parts requires.

    Raises:
        ConfigError: If a setting is invalid.
    """

    label = "u_shaped"
    fractions = (1 / 4, 3 / 4)
    labels_cross = False

    def __init__(
        self,
        cuts: tuple[int, int] | None = None,
        num_clients: int = 1,
        codec: CodecName | None = None,
        bucket: int = 1,
        partition: PartitionName = "iid",
        concentration: float = 0.5,
        schedule: Schedule = "in_turn",
    ) -> None:
        super().__init__(
            cuts, num_clients, "private", codec, bucket, partition, concentration, schedule
        )

    def sees(self, adapter_parameters: int) -> tuple[str, ...]:
        """Return sentences that say who sees what; the cuts must be placed."""
        return (
            *super().sees(adapter_parameters),
            f"Cut at {self.cuts[0]} and {self.cuts[1]}: labels, logits and answers stay with the "
            f"client, but gradients return into layer {self.cuts[1]}, and they depend on the "
            "answers.",
        )
