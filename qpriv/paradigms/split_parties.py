"""`SplitParties`: a decoder with cuts, its owners and their adapters."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import nn
from torch.optim import Optimizer

from qpriv.errors import ConfigError
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.split import Channel, CodecName, Defence, make_codec
from qpriv.split.padding import check_bucket

from .base import Paradigm
from .guards import Guards
from .partition import PartitionName
from .party_adapters import ClientAdapters, PartyAdapters, adapter_parameters
from .recipe import LoraRecipe
from .requirements import check_run, check_sizes

Schedule = Literal["in_turn", "together"]
"""Whether clients step one after another, or all at once with one step of the server."""


class SplitParties(Paradigm):
    """The owners of a cut decoder's layers and adapters, and the settings they share.

    Every adapter starts with its part of the weights that centralised training would start from.
    One optimiser serves all parties: its state is per weight, and it skips weights without a
    gradient, so it acts as one optimiser per party.
    """

    fractions: ClassVar[tuple[float, ...]]
    """Default cuts, as shares of the decoder's depth."""

    def __init__(
        self,
        cuts: tuple[int, ...] | None,
        num_clients: int,
        client_adapters: ClientAdapters,
        codec: CodecName | None,
        bucket: int,
        partition: PartitionName,
        concentration: float,
        schedule: Schedule,
    ) -> None:
        super().__init__(num_clients, partition, concentration)
        check_bucket(bucket)
        if schedule == "together" and num_clients > 1 and client_adapters != "private":
            raise ConfigError(
                "clients that step together cannot hand one adapter over",
                where="--model.paradigm.client_adapters",
                remedy="choose private",
            )
        self.schedule: Schedule = schedule
        self.client_adapters: ClientAdapters = client_adapters
        self._parties = PartyAdapters(num_clients, self.private)
        self.codec = make_codec(codec) if codec else None
        self.bucket = bucket
        self._given = cuts
        self._cuts: tuple[int, ...] | None = None
        self._seed = 0

    def place(self, num_layers: int) -> tuple[int, ...]:
        """Return the cuts in a decoder of ``num_layers`` layers.

        Raises:
            ConfigError: If a party would own no decoder layer. It would have no adapter to train,
                and no gradient would return to it.
        """
        cuts = self._given or tuple(round(share * num_layers) for share in self.fractions)
        bounds = (0, *cuts, num_layers)
        if len(cuts) != len(self.fractions) or list(bounds) != sorted(set(bounds)):
            # the projector is frozen, so a party without a layer has nothing to train
            bare = list(bounds) == sorted(bounds) and len(cuts) == len(self.fractions)
            why = ": a party without a decoder layer has no adapter to train" if bare else ""
            raise ConfigError(
                f"cuts are {list(cuts)}{why}",
                where=f"--model.paradigm {type(self).__name__}",
                remedy=f"give {len(self.fractions)}, rising, from 1 to {num_layers - 1}",
            )
        self._cuts = cuts
        return cuts

    @property
    def name(self) -> str:
        """Return the label, with the schedule if clients step together."""
        return self.label if self.schedule == "in_turn" else f"{self.label}(together)"

    @property
    def cuts(self) -> tuple[int, ...]:
        """Return the cuts that `place` has set.

        Raises:
            RuntimeError: If `place` has not been called.
        """
        if self._cuts is None:
            raise RuntimeError(f"{type(self).__name__} has no cuts yet: call place(num_layers)")
        return self._cuts

    def channel(self, cuts: Sequence[int] = (), client: int = 0) -> Channel:
        """Return the channel between the parties; the cuts must be placed.

        Args:
            cuts: Not used, because the paradigm has its own cuts.
            client: The client whose defence the channel runs.
        """
        return Channel(
            self.cuts,
            codec=self.codec,
            bucket=self.bucket,
            defence=self.guards.of(client),
            labels_cross=self.labels_cross,
            paradigm=self.name,
        )

    def defend(self, defence: Defence) -> None:
        """Set the defence at the cuts, after the cuts are placed.

        Raises:
            ConfigError: If the run does not meet the defence's requirements.
        """
        check_run(
            defence,
            type(self).__name__,
            clients=self.num_clients,
            together=self.schedule == "together",
            labels_cross=self.labels_cross,
            trained=self.cuts[:1] != (0,),
        )
        self.guards = Guards(defence)

    def check_passes(self, batch_size: int, micro_batch_size: int | None) -> None:
        """Check the batch sizes against the defence's requirements."""
        if (defence := self.guards.of(0)) is not None:
            check_sizes(defence, batch_size / self.num_clients, micro_batch_size)

    def sees(self, adapter_parameters: int) -> tuple[str, ...]:
        """Return sentences that say who sees what; the cuts must be placed."""
        return (
            f"{self.num_clients} client(s) keep the images. The server sees, token by token, what "
            f"enters layer {self.cuts[0]}: one vector for every kept patch and for every token of "
            "prompt and answer; and how many tokens there are.",
            "It can invert the vectors (FORA, supervised inversion), steer the client by its "
            "gradients (FSHA), and tell members from non-members.",
            "A dropped patch has no vector of its own; what earlier layers have mixed of it into "
            "kept ones may still be there.",
        )

    @property
    def private(self) -> bool:
        """Return whether every client has an adapter of its own."""
        return self.client_adapters == "private"

    def check_processes(self, count: int) -> None:
        """Check that there is only one process.

        Raises:
            ConfigError: If there are several, because the clients take turns.
        """
        if count > 1:
            raise ConfigError(
                f"{type(self).__name__} on {count} processes",
                where="--trainer.devices",
                remedy="use one: its clients take turns against one server",
            )

    def server_layers(self, num_layers: int) -> range:
        """Return the decoder layers that the server owns."""
        first, *behind = self.cuts
        return range(first, behind[0] if behind else num_layers)

    def adapters(self) -> tuple[str, ...]:
        """Return the names of all adapters, the server's first."""
        return self._parties.names()

    def adapter_of(self, client: int) -> str:
        """Return the name of the adapter that a client trains."""
        return self._parties.of(client)

    def add_adapters(self, model: VisionLanguageModel, recipe: LoraRecipe, seed: int) -> None:
        """Add the adapters of the server and the clients, all from one random initialisation."""
        self.place(model.num_layers)
        super().add_adapters(model, recipe, seed)
        self._parties.divide(model, recipe, seed, self.server_layers(model.num_layers))
        self._seed = seed
        copies = self.num_clients if self.private else 1
        self.guards.build(model.hidden_size, copies, seed, model.device)

    def activate(self, model: VisionLanguageModel, client: int) -> None:
        """Activate the adapters of one client and of the server."""
        self._parties.activate(model, client)

    def optimizer(self, model: VisionLanguageModel, recipe: LoraRecipe) -> Optimizer:
        """Return AdamW with a group of parameters for each party."""
        return self._parties.optimizer(recipe, lambda name: self.trained(model, name))

    def trained(self, model: VisionLanguageModel, name: str) -> list[nn.Parameter]:
        """Return the trained weights of an adapter's owner: adapter and side of the defence."""
        return [*adapter_parameters(model, name), *self.guards.trained(name)]
