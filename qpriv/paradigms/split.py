"""Split learning: the decoder is cut, clients own what is before it, the server what follows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from qpriv.boundary import CodecName, Crossing, Direction, Kind, Transcript, make_codec
from qpriv.boundary.padding import check_bucket, padding_cost
from qpriv.errors import ConfigError
from qpriv.models.batch import VQABatch
from qpriv.models.vision_language import LanguageOutput, VisionLanguageModel

from .adapter import activate
from .centralized import StepReport, accumulate_gradients
from .clipping import scale_gradients, square_norm
from .paradigm import Paradigm, Run, merge_reports
from .partition import PartitionName
from .recipe import LoraRecipe

SERVER = "server"
"""Name of the adapter on the server's layers."""

ClientAdapters = Literal["handed_over", "private"]


def client_name(client: int) -> str:
    """Return the name of the adapter on a client's layers."""
    return f"client{client}"


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
        count = self.num_clients if self.client_adapters == "private" else 1
        return (SERVER, *(client_name(client) for client in range(count)))

    def add_adapters(self, model: VisionLanguageModel, recipe: LoraRecipe, seed: int) -> None:
        """Give server and clients their adapters, all of them parts of one draw."""
        self.place(model.num_layers)
        super().add_adapters(model, recipe, seed)
        drawn = model.adapter_state()
        model.remove_lora()
        served = self.server_layers(model.num_layers)
        owned = [layer for layer in range(model.num_layers) if layer not in served]
        for name in self.adapters():
            layers: Sequence[int] = served if name == SERVER else owned
            model.add_lora(
                recipe.rank, recipe.alpha, recipe.dropout, seed, adapter=name, layers=layers
            )
            model.load_adapter_state({key: drawn[key] for key in model.adapter_state(name)}, name)
        self.activate(model, 0)

    def activate(self, model: VisionLanguageModel, client: int) -> None:
        """Let the model compute with a client's adapter and the server's."""
        activate(model, (SERVER, self._adapter_of(client)))
        for name in self.adapters():
            for parameter in adapter_parameters(model, name):
                # PEFT freezes what is inactive, and checkpoints hold what is not frozen
                parameter.requires_grad_(True)

    def become(self, model: VisionLanguageModel, client: int | None) -> None:
        """Leave in a model the server's adapter, and that of one client if it is the client's.

        Args:
            model: The model of a process that plays one party.
            client: The client; None for the server.
        """
        own = [SERVER] if client is None else [SERVER, self._adapter_of(client)]
        activate(model, own)
        for name in self.adapters():
            if name not in own:
                model.llava.delete_adapter(name)

    def optimizer(self, model: VisionLanguageModel, recipe: LoraRecipe) -> Optimizer:
        """Return AdamW with a group of parameters for each party."""
        optimizer = recipe.optimizer(adapter_parameters(model, SERVER))
        optimizer.param_groups[0]["name"] = SERVER
        for name in self.adapters()[1:]:
            optimizer.add_param_group({"params": adapter_parameters(model, name), "name": name})
        return optimizer

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
                run.backward,
                observe=lambda output: self._count_loss(transcript, output),
            )
        parties = [adapter_parameters(run.model, n) for n in (SERVER, self._adapter_of(client))]
        total = sum(square_norm(own) for own in parties)
        for direction in (Direction.UP, Direction.DOWN):
            transcript.add(self._cuts[0], Kind.SCALAR, direction, [_scalar()])
        for own in parties:
            scale_gradients(own, total, run.recipe.clip)
        optimizer.step()
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
        transcript = Transcript(store=store, client=client)
        with ExitStack() as stack:
            for cut, direction in zip(self._cuts, (Direction.UP, Direction.DOWN), strict=False):
                crossing = Crossing(
                    model,
                    cut,
                    transcript,
                    direction=direction,
                    gradients=gradients,
                    codec=self.codec,
                    bucket=self.bucket,
                )
                stack.enter_context(crossing)
            yield transcript

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

    def _adapter_of(self, client: int) -> str:
        return client_name(client if self.client_adapters == "private" else 0)

    def _count_loss(self, transcript: Transcript, output: LanguageOutput) -> None:
        """Record labels and token count on their way to a server, and the loss on its way back."""
        if not self.labels_cross:
            return
        real = output.sequences.attention_mask.bool()
        rows = [row[keep].int() for row, keep in zip(output.labels, real, strict=True)]
        cut = self._cuts[-1]
        # filled like the activations they cross with, or their size would tell what those hide
        lengths = [len(row) for row in rows]
        filler = 4 * padding_cost(lengths, self.bucket)
        size = 4 * sum(lengths) + filler
        transcript.add(cut, Kind.LABELS, Direction.UP, rows, num_bytes=size, filler=filler)
        transcript.add(cut, Kind.SCALAR, Direction.UP, [_scalar()])
        transcript.add(cut, Kind.SCALAR, Direction.DOWN, [_scalar()])

    def _hand_over(self, model: VisionLanguageModel, client: int, optimizer: Optimizer) -> None:
        """Count the one client adapter, with its moments, on its way to the next client."""
        if self.client_adapters == "private" or client == self._holder:
            return
        self._holder = client
        weights = adapter_parameters(model, client_name(0))
        moments = [
            value
            for weight in weights
            for value in optimizer.state.get(weight, {}).values()
            if isinstance(value, Tensor)
        ]
        transcript = Transcript(store=False, client=client)
        transcript.add(self._cuts[0], Kind.ADAPTER, Direction.ACROSS, weights)
        transcript.add(self._cuts[0], Kind.OPTIMIZER, Direction.ACROSS, moments)
        self.traffic.add(transcript, samples=0)


class SplitLearning(Split):
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
    ) -> None:
        cuts = None if cut is None else (cut,)
        super().__init__(
            cuts, num_clients, client_adapters, codec, bucket, partition, concentration
        )


def adapter_parameters(model: VisionLanguageModel, adapter: str) -> list[nn.Parameter]:
    """Return the weights of one adapter."""
    ending = f".{adapter}.weight"
    return [
        parameter
        for name, parameter in model.named_parameters()
        if name.endswith(ending) and ".lora_" in name
    ]


def _scalar() -> Tensor:
    return torch.zeros(1, dtype=torch.float64)
