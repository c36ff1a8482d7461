"""U-shaped split learning: images, questions, labels and answers all stay with the client."""

from qpriv.split import CodecName

from .partition import PartitionName
from .split_base import Schedule, SplitParadigm


class UShapedSplit(SplitParadigm):
    """Clients own embeddings, projector, the first and the last layers, and the LM head.

    The server holds the body between two cuts. It sees the activations that enter it and the
    gradients that return into it, and no image, question, label or logit (Vepakomma et al. 2018,
    arXiv:1812.00564, figure 2b). Each client's head and tail adapter and its optimiser state are
    its own; the adapter of the body is shared.

    Args:
        cuts: First layer of the body, and first layer of the tail; null is a quarter and three
            quarters of the depth (8 and 24 of 32).
        num_clients: Number of clients.
        codec: How activations and gradients are written for the wire; null as they are computed.
        bucket: Messages are filled to a multiple of so many tokens a sample.
        partition: How images are dealt to the clients.
        concentration: Of ``dirichlet``: the smaller, the less alike the shards.
        schedule: ``in_turn`` gives every client a step with the server; ``together`` takes one
            step of the server for all of them, as a defence that joins their parts needs it.

    Raises:
        ConfigError: If a setting cannot work.
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
        """Return who sees what, a sentence each, once the cuts are placed."""
        return (
            *super().sees(adapter_parameters),
            f"Cut at {self.cuts[0]} and {self.cuts[1]}: labels, logits and answers stay with the "
            f"client, but gradients return into layer {self.cuts[1]}, and they depend on the "
            "answers.",
        )
