"""Split learning: clients own the layers before the cut, the server those after it."""

from qpriv.split import CodecName

from .partition import PartitionName
from .party_adapters import SERVER, ClientAdapters, adapter_parameters, client_name
from .split_base import Schedule, SplitParadigm

__all__ = ("SERVER", "SplitLearning", "SplitParadigm", "adapter_parameters", "client_name")


class SplitLearning(SplitParadigm):
    """Layers before the cut, embeddings and projector are the clients'; the rest, with the LM
    head, is the server's. Labels cross to it (Vepakomma et al. 2018, arXiv:1812.00564).

    With ``handed_over``, clients pass one adapter and its optimiser state directly to each other,
    not through the server. Any number of clients then learns the same as one trainer with their
    batches in that order. With ``private``, every client keeps its own adapter.

    Args:
        cut: First decoder layer of the server; null is the middle (16 of 32).
        num_clients: Number of clients.
        client_adapters: Whether clients hand over one adapter, or each has its own.
        codec: Codec of activations and gradients; null sends them as computed.
        bucket: Pad messages to a multiple of this many tokens per sample.
        partition: How images are dealt to the clients.
        concentration: Concentration of ``dirichlet``; smaller values make shards less alike.
        schedule: ``in_turn`` takes one step of the server per client; ``together`` takes one step
            of the server for all clients, which a defence that joins their parts requires.

    Raises:
        ConfigError: If a setting is invalid.
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
        """Return sentences that say who sees what; the cut must be placed."""
        return (
            *super().sees(adapter_parameters),
            f"Cut at {self.cuts[0]}: the loss is computed by the server, which is told the answers.",
        )
