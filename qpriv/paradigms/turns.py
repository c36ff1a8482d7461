"""`Split`: the decoder is cut, and clients train in turn against the server behind the cut."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from qpriv.boundary import Channel, CodecName, RandomKey, Transcript, make_codec
from qpriv.boundary.padding import check_bucket
from qpriv.errors import ConfigError
from qpriv.models.batch import VQABatch
from qpriv.models.vision_language import LanguageOutput, VisionLanguageModel

from .centralized import StepReport, accumulate_gradients
from .clipping import scale_gradients, square_norm
from .paradigm import Paradigm, Run, merge_reports
from .partition import PartitionName
from .party_adapters import SERVER, ClientAdapters, PartyAdapters, adapter_parameters, client_name
from .recipe import LoraRecipe
from .split_counts import count_hand_over, count_loss, count_scalars


class Split(Paradigm):
    """What split and U-shaped split learning have in common.

    Clients train one after another against the shared server. In one process the parties are the
    whole model with a `Crossing` at every cut; `qpriv.boundary.parties` holds the same parties
    as objects of their own, equal bit for bit. One AdamW serves all parties here: its state
    belongs to single weights, and weights without a gradient are skipped, so it is one AdamW for
    each client and one for the server.

    Every adapter starts as its part of the one draw that centralised training starts from.
    Gradients are clipped by the norm over both parties, who exchange a number each.
    """

    fractions: ClassVar[tuple[float, ...]]
    """Where the cuts lie by default, as shares of the decoder's depth."""

    labels_cross: ClassVar[bool]
    """Whether the server computes the loss."""

    def __init__(
        self,
        cuts: tuple[int, ...] | None,
        num_clients: int,
        client_adapters: ClientAdapters,
        codec: CodecName | None,
        bucket: int,
        partition: PartitionName,
        concentration: float,
    ) -> None:
        super().__init__(num_clients, partition, concentration)
        check_bucket(bucket)
        self.client_adapters: ClientAdapters = client_adapters
        self._parties = PartyAdapters(num_clients, self.private)
        self.codec = make_codec(codec) if codec else None
        self.bucket = bucket
        self._given = cuts
        self._cuts: tuple[int, ...] = ()
        self._holder = 0

    def place(self, num_layers: int) -> tuple[int, ...]:
        """Return the cuts in a decoder of some depth.

        Raises:
            ConfigError: If a party would be left without a layer.
        """
        cuts = self._given or tuple(round(share * num_layers) for share in self.fractions)
        bounds = (0, *cuts, num_layers)
        if len(cuts) != len(self.fractions) or list(bounds) != sorted(set(bounds)):
            raise ConfigError(
                f"cuts are {list(cuts)}",
                where=f"--model.paradigm {type(self).__name__}",
                remedy=f"give {len(self.fractions)}, rising, from 1 to {num_layers - 1}",
            )
        self._cuts = cuts
        return cuts

    @property
    def cuts(self) -> tuple[int, ...]:
        """Return where `place` has put the cuts."""
        return self._cuts

    def channel(self, cuts: Sequence[int] = ()) -> Channel:
        """Return what crosses between the parties, once the cuts are placed.

        Args:
            cuts: Not read: the cuts are the paradigm's own.
        """
        return Channel(
            self._cuts,
            codec=self.codec,
            bucket=self.bucket,
            labels_cross=self.labels_cross,
            paradigm=self.label,
        )

    @property
    def private(self) -> bool:
        """Return whether every client has an adapter of its own."""
        return self.client_adapters == "private"

    def check_processes(self, count: int) -> None:
        """Refuse more than one process.

        Raises:
            ConfigError: If there are several: the clients take turns.
        """
        if count > 1:
            raise ConfigError(
                f"{type(self).__name__} on {count} processes",
                where="--trainer.devices",
                remedy="use one: its clients take turns against one server",
            )

    def server_layers(self, num_layers: int) -> range:
        """Return the decoder layers that the server owns."""
        return range(self._cuts[0], self._cuts[1] if len(self._cuts) == 2 else num_layers)

    def adapters(self) -> tuple[str, ...]:
        """Return the names of all adapters, the server's first."""
        return self._parties.names()

    def add_adapters(self, model: VisionLanguageModel, recipe: LoraRecipe, seed: int) -> None:
        """Give server and clients their adapters, all of them parts of one draw."""
        self.place(model.num_layers)
        super().add_adapters(model, recipe, seed)
        self._parties.divide(model, recipe, seed, self.server_layers(model.num_layers))

    def activate(self, model: VisionLanguageModel, client: int) -> None:
        """Let the model compute with a client's adapter and the server's."""
        self._parties.activate(model, client)

    def become(self, model: VisionLanguageModel, client: int | None) -> None:
        """Leave in a model the server's adapter, and that of one client if it is the client's.

        Args:
            model: The model of a process that plays one party.
            client: The client; None for the server.
        """
        self._parties.keep(model, client)

    def optimizer(self, model: VisionLanguageModel, recipe: LoraRecipe) -> Optimizer:
        """Return AdamW with a group of parameters for each party."""
        return self._parties.optimizer(model, recipe)

    def step(
        self,
        run: Run,
        batch: VQABatch,
        optimizer: Optimizer,
        scheduler: LRScheduler,
        *,
        last: bool = False,
    ) -> StepReport:
        """Give every client its turn: an optimiser step of it and of the server."""
        parts = self.parts(batch)
        reports = {client: self.turn(run, client, part, optimizer) for client, part in parts}
        scheduler.step()
        self.activate(run.model, 0)
        self.figures = {f"client{client}/loss": own.loss for client, own in reports.items()}
        return merge_reports(list(reports.values()))

    def turn(self, run: Run, client: int, batch: VQABatch, optimizer: Optimizer) -> StepReport:
        """Let one client learn from its rows, together with the server."""
        self._hand_over(run.model, client, optimizer)
        optimizer.zero_grad()
        with self.crossings(run.model, client, gradients=True) as transcript:
            report = accumulate_gradients(
                run.model,
                batch,
                run.policy,
                run.encode,
                run.recipe.micro_batch_size,
                run.scaling.backward,
                observe=lambda output: self._observe(transcript, output),
                cut=self._cuts[0],
            )
        names = (SERVER, self._parties.of(client))
        parties = [adapter_parameters(run.model, name) for name in names]
        total = sum(square_norm(own, run.scaling.scale) for own in parties)
        count_scalars(transcript, self._cuts[0])
        for own in parties:
            scale_gradients(own, total, run.recipe.clip)
        run.scaling.step(optimizer)
        self.traffic.add(transcript, len(batch))
        return report

    @contextmanager
    def crossings(
        self,
        model: VisionLanguageModel,
        client: int,
        *,
        gradients: bool = False,
        store: bool = False,
    ) -> Iterator[Transcript]:
        """Open the cuts between a client and the server, and yield what the server sees.

        Args:
            model: The model.
            client: The client whose adapter is active meanwhile.
            gradients: Whether gradients return.
            store: Keep the tensors and not only their sizes.
        """
        self.activate(model, client)
        key = RandomKey(client=client)
        with self.channel().open(model, gradients=gradients, store=store, key=key) as opened:
            yield opened.transcript

    @contextmanager
    def answering(self, model: VisionLanguageModel, client: int) -> Iterator[None]:
        """Let the model answer as one client and the server would, through the codec."""
        try:
            with self.crossings(model, client):
                yield
        finally:
            self.activate(model, 0)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beyond weights and optimiser."""
        return {**super().state(), "holder": self._holder}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` returned."""
        super().load_state(state)
        self._holder = state["holder"]

    def _observe(self, transcript: Transcript, output: LanguageOutput) -> None:
        if self.labels_cross:
            count_loss(transcript, self._cuts[-1], output, self.bucket)

    def _hand_over(self, model: VisionLanguageModel, client: int, optimizer: Optimizer) -> None:
        """Count the one client adapter, with its moments, on its way to the next client."""
        if self.private or client == self._holder:
            return
        self._holder = client
        transcript = Transcript(store=False, client=client)
        weights = adapter_parameters(model, client_name(0))
        count_hand_over(transcript, self._cuts[0], weights, optimizer)
        self.traffic.add(transcript, samples=0)
