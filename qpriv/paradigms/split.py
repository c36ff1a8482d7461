"""Split learning: the decoder is cut, clients own what is before it, the server what follows."""

from qpriv.split import CodecName

from .partition import PartitionName
from .party_adapters import SERVER, ClientAdapters, adapter_parameters, client_name
from .split_base import Schedule, SplitParadigm

__all__ = ("SERVER", "SplitLearning", "SplitParadigm", "adapter_parameters", "client_name")


class SplitLearning(SplitParadigm):
    """Layers before the cut, embeddings and projector are the clients'; the rest, with the LM
    head, is the server's. Labels cross to it (Vepakomma et al. 2018, arXiv:1812.00564).

    With ``handed_over`` the clients share one adapter that goes from client to client with its
    optimiser state, not by way of the server: any number of clients then learn what one trainer
    would from their batches in that order. With ``private`` each keeps its own.

    Args:
        cut: First decoder layer of the server; null is the middle (16 of 32).
        num_clients: Number of clients.
        client_adapters: Whether the clients' adapter is handed over or each has its own.
        codec: How activations and gradients are written for the wire; null as they are computed.
        bucket: Messages are filled to a multiple of so many tokens a sample.
        partition: How images are dealt to the clients.
        concentration: Of ``dirichlet``: the smaller, the less alike the shards.
        schedule: ``in_turn`` gives every client a step with the server; ``together`` takes one
            step of the server for all of them, as a defence that joins their parts needs it.

    Raises:
        ConfigError: If a setting cannot work.
    """  # noqa: D205

    label = "split"
    fractions = (1 / 2,)
    labels_cross = True

    def __init__(
        self,
        cut: int | None = None,
        num_clients: int = 1,
        client_adapters: ClientAdapters = "handed_over",
        codec: CodecName | None = None,
        bucket: int = 1,
        partition: PartitionName = "iid",
        concentration: float = 0.5,
        schedule: Schedule = "in_turn",
    ) -> None:
        cuts = None if cut is None else (cut,)
        super().__init__(
            cuts, num_clients, client_adapters, codec, bucket, partition, concentration, schedule
        )

    def sees(self, adapter_parameters: int) -> tuple[str, ...]:
        """Return who sees what, a sentence each, once the cut is placed."""
        return (
            *super().sees(adapter_parameters),
            f"Cut at {self.cuts[0]}: the loss is computed by the server, which is told the answers.",
        )
