"""`SplitParadigm`: the decoder is cut, and clients train in turn against the server behind the cut."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Literal

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from qpriv.errors import ConfigError
from qpriv.models.batch import VQABatch
from qpriv.models.llava.vision_language import LanguageOutput, VisionLanguageModel
from qpriv.split import Channel, CodecName, Defence, RandomKey, Transcript, make_codec
from qpriv.split.channel import Open
from qpriv.split.crossing import Arrived
from qpriv.split.padding import check_bucket

from .base import Paradigm, Run, merge_reports
from .centralized import StepReport, accumulate_gradients, answer_tokens
from .clipping import scale_gradients, square_norm
from .guards import Guards, OwnGradient
from .partition import PartitionName
from .party_adapters import SERVER, ClientAdapters, PartyAdapters, adapter_parameters, client_name
from .recipe import LoraRecipe
from .requirements import check_run, check_sizes
from .split_counts import count_hand_over, count_loss, count_scalars
from .split_server import Server
from .together import Lesson, learn_joined

Schedule = Literal["in_turn", "together"]
"""Whether clients step one after another, or all at once with one step of the server."""


class SplitParadigm(Paradigm):
    """What split and U-shaped split learning have in common.

    Clients train one after another against the shared server, or step together with it. In one
    process the parties are the whole model with a `Crossing` at every cut; `qpriv.split.layers`
    holds the same parties as objects of their own, equal bit for bit. One AdamW serves all parties here: its state
    belongs to single weights, and weights without a gradient are skipped, so it is one AdamW for
    each client and one for the server.

    Every adapter starts as its part of the one draw that centralised training starts from.
    Gradients are clipped by the norm over both parties, who exchange a number each.
    """

    fractions: ClassVar[tuple[float, ...]]
    """Where the cuts lie by default, as shares of the decoder's depth."""

    exchanges = "layers"

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
        self._cuts: tuple[int, ...] = ()
        self._holder = 0
        self._seed, self._steps = 0, 0

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
    def name(self) -> str:
        """Return the label, with the schedule where clients do not take turns."""
        return self.label if self.schedule == "in_turn" else f"{self.label}(together)"

    @property
    def cuts(self) -> tuple[int, ...]:
        """Return where `place` has put the cuts."""
        return self._cuts

    def channel(self, cuts: Sequence[int] = (), client: int = 0) -> Channel:
        """Return what crosses between the parties, once the cuts are placed.

        Args:
            cuts: Not read: the cuts are the paradigm's own.
            client: The client, where each has weights of its own.
        """
        return Channel(
            self._cuts,
            codec=self.codec,
            bucket=self.bucket,
            defence=self.guards.of(client),
            labels_cross=self.labels_cross,
            paradigm=self.name,
        )

    def defend(self, defence: Defence) -> None:
        """Let the parties do at their cuts what a defence says; called when cuts are placed."""
        check_run(
            defence,
            type(self).__name__,
            clients=self.num_clients,
            together=self.schedule == "together",
            labels_cross=self.labels_cross,
            trained=self._cuts[:1] != (0,),
        )
        self.guards = Guards(defence)

    def check_passes(self, batch_size: int, micro_batch_size: int | None) -> None:
        """Check the sizes of batches against what the defence needs."""
        if (defence := self.guards.of(0)) is not None:
            check_sizes(defence, batch_size / self.num_clients, micro_batch_size)

    @abstractmethod
    def server(
        self, model: VisionLanguageModel, recipe: LoraRecipe, steps: int, *, seed: int
    ) -> Server:
        """Return the server as a party of its own, with its layers of the model.

        Args:
            model: The whole model, with the server's adapter.
            recipe: How adapters are trained.
            steps: Optimiser steps of the whole run.
            seed: Seed of the run.
        """

    def sees(self, adapter_parameters: int) -> tuple[str, ...]:
        """Return who sees what, a sentence each, once the cuts are placed."""
        return (
            f"{self.num_clients} client(s) keep the images. The server sees, token by token, what "
            f"enters layer {self.cuts[0]}: one vector for every kept patch and for every token of "
            "prompt and answer; and how many tokens there are.",
            "It can invert the vectors (FORA, supervised inversion), steer the client by its "
            "gradients (FSHA), and tell members from non-members.",
            "A dropped patch has no vector of its own; what earlier layers have mixed of it into "
            "kept ones may still be there.",
        )

    def terms(self) -> dict[str, object]:
        """Return what parties must agree on: cuts, and what is done to what crosses them."""
        return {
            "cuts": self.cuts,
            "codec": self.codec.name if self.codec else "as computed",
            "bucket": self.bucket,
            "defence": self.channel().defence_label,
        }

    def check_divisible(self) -> None:
        """Check that the parties can be processes of their own.

        Raises:
            ConfigError: If clients step together, or hand one adapter over.
        """
        if self.schedule == "together":
            raise ConfigError(
                "parties of their own take turns: clients that step together do so in one process",
                where="--model.paradigm.schedule",
                remedy="choose in_turn",
            )
        if self.num_clients > 1 and not self.private:
            raise ConfigError(
                "an adapter that is handed over would pass through the server",
                where="--model.paradigm.client_adapters",
                remedy="choose private",
            )

    def schedule_steps(self, rounds: int, asked: int | None) -> int:
        """Return how many optimiser steps the schedule spans: one a round.

        Raises:
            ConfigError: If another number is asked for.
        """
        if asked not in (None, rounds):
            raise ConfigError(
                f"steps is {asked}, rounds is {rounds}",
                where="--steps",
                remedy="leave it out: in a split every client takes one step a round",
            )
        return rounds

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

    def adapter_of(self, client: int) -> str:
        """Return the name of the adapter that a client trains."""
        return self._parties.of(client)

    def add_adapters(self, model: VisionLanguageModel, recipe: LoraRecipe, seed: int) -> None:
        """Add the adapters of the server and of the clients; all come from one random draw."""
        self.place(model.num_layers)
        super().add_adapters(model, recipe, seed)
        self._parties.divide(model, recipe, seed, self.server_layers(model.num_layers))
        self._seed = seed
        copies = self.num_clients if self.private else 1
        self.guards.build(model.hidden_size, copies, seed, model.device)

    def activate(self, model: VisionLanguageModel, client: int) -> None:
        """Activate the adapters of one client and of the server."""
        self._parties.activate(model, client)

    def become(self, model: VisionLanguageModel, client: int | None) -> None:
        """Keep only the server's adapter, plus this client's if given.

        Args:
            model: The model of a process that plays one party.
            client: The client; None for the server.
        """
        self._parties.keep(model, client)

    def optimizer(self, model: VisionLanguageModel, recipe: LoraRecipe) -> Optimizer:
        """Return AdamW with a group of parameters for each party."""
        return self._parties.optimizer(recipe, lambda name: self.trained(model, name))

    def trained(self, model: VisionLanguageModel, name: str) -> list[nn.Parameter]:
        """Return what the owner of an adapter trains: the adapter, and its side of the defence."""
        return [*adapter_parameters(model, name), *self.guards.trained(name)]

    def step(
        self,
        run: Run,
        batch: VQABatch,
        optimizer: Optimizer,
        scheduler: LRScheduler,
        *,
        last: bool = False,
    ) -> StepReport:
        """Give every client its turn, or let all of them step together."""
        parts = self.parts(batch)
        if self.schedule == "together":
            reports = self._together(run, parts, optimizer)
        else:
            reports = {client: self.turn(run, client, part, optimizer) for client, part in parts}
        scheduler.step()
        self._steps += 1
        self.activate(run.model, 0)
        self.metrics = {f"client{client}/loss": own.loss for client, own in reports.items()}
        return merge_reports(list(reports.values()))

    def turn(self, run: Run, client: int, batch: VQABatch, optimizer: Optimizer) -> StepReport:
        """Let one client learn from its rows, together with the server."""
        self._hand_over(run.model, client, optimizer)
        optimizer.zero_grad()
        lesson = self._learn(run, client, batch)
        self._update(run, [lesson], optimizer)
        return lesson.report

    def _together(
        self, run: Run, parts: Sequence[tuple[int, VQABatch]], optimizer: Optimizer
    ) -> dict[int, StepReport]:
        """Let all clients learn at once: one step of each, and one of the server for all."""
        optimizer.zero_grad()
        if (defence := self.guards.of(0)) is not None and defence.joins:
            lessons = learn_joined(self, defence, run, parts)
        else:
            tokens = sum(answer_tokens(part) for _, part in parts)
            lessons = [self._learn(run, client, part, tokens) for client, part in parts]
        self._update(run, lessons, optimizer)
        return {lesson.client: lesson.report for lesson in lessons}

    def _learn(self, run: Run, client: int, batch: VQABatch, tokens: int | None = None) -> Lesson:
        """Add the gradients of a client's rows to its weights and the server's.

        Args:
            run: What is trained.
            client: The client.
            batch: Its rows.
            tokens: Answer tokens of all that learn in this step; None is this client alone.
        """
        own = self.own_gradient(run, client)

        def observe(output: LanguageOutput, share: float) -> None:
            self.observe(transcript, output)
            own.take(share)

        scale = run.scaling.scale
        with self.crossings(run.model, client, gradients=True, own=own, scale=scale) as transcript:
            report = accumulate_gradients(
                run.model,
                batch,
                run.policy,
                run.encode,
                run.recipe.micro_batch_size,
                run.scaling.backward,
                tokens,
                observe=observe,
                cut=self._cuts[0],
            )
        if tokens is not None:
            report = replace(report, loss=report.loss * tokens / report.tokens)
        return Lesson(client, report, transcript, own)

    def own_gradient(self, run: Run, client: int) -> OwnGradient:
        """Return what takes the gradient of a client's own terms in a step."""
        return OwnGradient(self.trained(run.model, self._parties.of(client)), run.recipe.clip)

    def _update(self, run: Run, lessons: Sequence[Lesson], optimizer: Optimizer) -> None:
        """Take a step of all that have learned, clipped by the norm over all of them."""
        names = (SERVER, *(self._parties.of(lesson.client) for lesson in lessons))
        parties = [self.trained(run.model, name) for name in names]
        scale = run.scaling.scale
        total = sum(square_norm(weights, scale) for weights in parties)
        for weights in parties:
            scale_gradients(weights, total, run.recipe.clip)
        for lesson in lessons:
            count_scalars(lesson.transcript, self._cuts[0])
            lesson.own.add(scale)
            self.traffic.add(lesson.transcript, lesson.report.samples)
        run.scaling.step(optimizer)

    @contextmanager
    def crossings(
        self,
        model: VisionLanguageModel,
        client: int,
        *,
        gradients: bool = False,
        store: bool = False,
        own: OwnGradient | None = None,
        scale: float = 1.0,
    ) -> Iterator[Transcript]:
        """Open the cuts between a client and the server, and yield what the server sees.

        Args:
            model: The model.
            client: The client whose adapter is active meanwhile.
            gradients: Whether gradients return.
            store: Keep the tensors and not only their sizes.
            own: Takes the terms of the client's own gradient.
            scale: By what the loss is multiplied.
        """
        with self.opened(
            model, client, gradients=gradients, store=store, terms=own is not None, scale=scale
        ) as opened:
            if own is not None:
                own.watch(opened)
            yield opened.transcript

    @contextmanager
    def opened(
        self,
        model: VisionLanguageModel,
        client: int,
        *,
        gradients: bool = False,
        store: bool = False,
        terms: bool = False,
        stop: int | None = None,
        instead: Arrived | None = None,
        scale: float = 1.0,
    ) -> Iterator[Open]:
        """Open a client's channel in this step, its adapter active; see `Channel.open`."""
        self.activate(model, client)
        key = RandomKey(self._seed, self._steps, 0, client)
        with self.channel(client=client).open(
            model,
            gradients=gradients,
            store=store,
            key=key,
            stop=stop,
            terms=terms,
            instead=instead,
            scale=scale,
        ) as opened:
            yield opened

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
        guards = {name: value.detach().clone() for name, value in self.guards.untrained().items()}
        own = {"holder": self._holder, "steps": self._steps, "guards": guards}
        return {**super().state(), **own}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        super().load_state(state)
        self._holder = state["holder"]
        # checkpoints from before there were defences have neither
        self._steps = state.get("steps", 0)
        self.guards.load_untrained(state.get("guards", {}))

    def observe(self, transcript: Transcript, output: LanguageOutput) -> None:
        """Count what a pass tells the server beside activations."""
        if self.labels_cross:
            count_loss(transcript, self._cuts[-1], output, self.bucket)

    def _hand_over(self, model: VisionLanguageModel, client: int, optimizer: Optimizer) -> None:
        """Count the one client adapter, with its moments, on its way to the next client."""
        if self.private or client == self._holder:
            return
        self._holder = client
        transcript = Transcript(store=False, client=client)
        weights = self.trained(model, client_name(0))
        count_hand_over(transcript, self._cuts[0], weights, optimizer)
        self.traffic.add(transcript, samples=0)
