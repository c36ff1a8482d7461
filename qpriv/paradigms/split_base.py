"""`SplitParadigm`: clients train with the server in turn or together, in one process."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from qpriv.models.batch import VQABatch
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.split import CodecName, RandomKey, Transcript
from qpriv.split.channel import Open
from qpriv.split.crossing import Arrived

from .base import Run, merge_reports
from .centralized import StepReport, answer_tokens
from .own_gradient import OwnGradient
from .partition import PartitionName
from .party_adapters import ClientAdapters, client_name
from .split_apart import SplitApart
from .split_parties import Schedule
from .split_step import Lesson, count_hand_over, learn, take_step
from .together import learn_joined

__all__ = ("Schedule", "SplitParadigm")


class SplitParadigm(SplitApart):
    """The base class of split and U-shaped split learning in one process.

    Clients train one after another with the shared server, or step together with it. The parties
    are one whole model with a `Crossing` at every cut. `SplitClient` and `Server` are the same
    parties as separate objects that communicate by messages, with bit-equal results. Gradients
    are clipped by the norm over all parties of a step, for which each party sends one number.
    """

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
        super().__init__(
            cuts, num_clients, client_adapters, codec, bucket, partition, concentration, schedule
        )
        self._holder = 0
        self._steps = 0

    def step(
        self,
        run: Run,
        batch: VQABatch,
        optimizer: Optimizer,
        scheduler: LRScheduler,
        *,
        last: bool = False,
    ) -> StepReport:
        """Train all clients on one batch, in turn or together."""
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
        """Take one step of a client and the server on the client's rows."""
        self._hand_over(run.model, client, optimizer)
        optimizer.zero_grad()
        lesson = learn(self, run, client, batch)
        take_step(self, run, [lesson], optimizer)
        return lesson.report

    def _together(
        self, run: Run, parts: Sequence[tuple[int, VQABatch]], optimizer: Optimizer
    ) -> dict[int, StepReport]:
        """Take one step of every client, and one step of the server for all of them."""
        optimizer.zero_grad()
        lessons: Sequence[Lesson]
        if (defence := self.guards.of(0)) is not None and defence.joins:
            lessons = learn_joined(self, defence, run, parts)
        else:
            tokens = sum(answer_tokens(part) for _, part in parts)
            lessons = [learn(self, run, client, part, tokens) for client, part in parts]
        take_step(self, run, lessons, optimizer)
        return {lesson.client: lesson.report for lesson in lessons}

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
            gradients: Record returning gradients.
            store: Keep the tensors, not only their sizes.
            own: Takes the client's own loss terms.
            scale: Factor of the loss.
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
        """Activate a client's adapter and open its channel for this step; see `Channel.open`."""
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
        """Let the model answer as one client with the server, through the codec."""
        try:
            with self.crossings(model, client):
                yield
        finally:
            self.activate(model, 0)

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint must hold besides weights and optimiser."""
        guards = {name: value.detach().clone() for name, value in self.guards.untrained().items()}
        own = {"holder": self._holder, "steps": self._steps, "guards": guards}
        return {**super().state(), **own}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        super().load_state(state)
        self._holder = state["holder"]
        # checkpoints from before defences were added have neither
        self._steps = state.get("steps", 0)
        self.guards.load_untrained(state.get("guards", {}))

    def _hand_over(self, model: VisionLanguageModel, client: int, optimizer: Optimizer) -> None:
        """Count the bytes of handing the clients' adapter and its moments to the next client."""
        if self.private or client == self._holder:
            return
        self._holder = client
        transcript = Transcript(store=False, client=client)
        weights = self.trained(model, client_name(0))
        count_hand_over(transcript, self.cuts[0], weights, optimizer)
        self.traffic.add(transcript, samples=0)
