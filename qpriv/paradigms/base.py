"""`Paradigm`: who owns which layers and which data, and who steps when. `Centralized`: one party."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.models.batch import VQABatch
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.pruning.policy import PruningPolicy
from qpriv.split import Channel, Codec, Defence, Traffic

from . import centralized, ranks
from .centralized import Encode, StepReport, answer_tokens
from .guards import Guards
from .partition import Partition, PartitionName, draw_partition
from .recipe import LoraRecipe
from .scaling import OwnScaling, Scaling


@dataclass(frozen=True)
class Run:
    """What a fine-tune works on, whoever owns it.

    Args:
        model: The model, with the adapters that the paradigm gave it.
        policy: The pruning policy, run where the data are.
        encode: The frozen encoders, run where the data are.
        recipe: How adapters are trained.
        seed: Seed of the run.
        scaling: Runs backward passes and takes steps, where a trainer has its own way.
        first_cut: Layer before which kept tokens are counted where nothing is cut.
    """

    model: VisionLanguageModel
    policy: PruningPolicy
    encode: Encode
    recipe: LoraRecipe
    seed: int = 0
    scaling: Scaling = field(default_factory=OwnScaling)
    first_cut: int = 0


class Paradigm(ABC):
    """One division of model and data among parties.

    The same model, recipe, schedule and batches serve all paradigms. A batch holds what all
    clients draw in one step: each takes the rows whose images are in its own shard.

    Args:
        num_clients: Number of clients.
        partition: How images are dealt to them.
        concentration: Of ``dirichlet``: the smaller, the less alike the shards.

    Raises:
        ConfigError: If a number is out of its range.
    """

    label: ClassVar[str]
    """Its name in results and reports."""

    clients_on_ranks: ClassVar[bool] = False
    """Whether processes share the clients among them, and so all read the same batches."""

    crosses: ClassVar[bool] = True
    """Whether anything crosses between parties in training."""

    exchanges: ClassVar[Literal["adapters", "layers"] | None] = None
    """What parties that are processes of their own work on together: adapters of whole models, or
    the layers of one; None where there is one party."""

    labels_cross: ClassVar[bool] = False
    """Whether the server computes the loss."""

    codec: Codec | None = None
    """How activations and gradients are written for the wire; None as they are computed."""

    bucket: int = 1
    """Messages are filled to a multiple of so many tokens a sample."""

    metrics: dict[str, float]
    """Metrics of the last step, by name."""

    def __init__(
        self,
        num_clients: int = 1,
        partition: PartitionName = "iid",
        concentration: float = 0.5,
    ) -> None:
        if num_clients < 1:
            raise ConfigError(f"num_clients is {num_clients}", remedy="choose 1 or more")
        if concentration <= 0:
            raise ConfigError(f"concentration is {concentration}", remedy="choose more than 0")
        self.num_clients = num_clients
        self.partition: PartitionName = partition
        self.concentration = concentration
        self.shards = Partition({}, num_clients)
        self.traffic = Traffic()
        self.guards = Guards()
        """What defends the clients where something is cut."""
        self.metrics = {}

    @property
    def name(self) -> str:
        """Return the label, with what else tells runs of it apart."""
        return self.label

    def place(self, num_layers: int) -> tuple[int, ...]:
        """Return the cuts in a decoder of some depth; nothing is cut here.

        Raises:
            ConfigError: If the cuts do not fit into it.
        """
        return ()

    def supposed_cuts(self, num_layers: int) -> tuple[int, ...]:
        """Return where a cut is supposed for a forecast, in a decoder of some depth."""
        return (num_layers // 2,)

    def server_layers(self, num_layers: int) -> range:
        """Return the decoder layers that the server owns."""
        return range(0)

    def round_numbers(self, adapter_parameters: int) -> int:
        """Return how many weights a client sends in a round."""
        return 0

    @abstractmethod
    def sees(self, adapter_parameters: int) -> tuple[str, ...]:
        """Return who sees what, a sentence each, once the cuts are placed.

        Args:
            adapter_parameters: Trained parameters of one adapter.
        """

    def terms(self) -> dict[str, object]:
        """Return what parties must agree on beside recipe, seed and number of clients."""
        return {}

    def check_divisible(self) -> None:
        """Check that the parties can be processes of their own.

        Raises:
            ConfigError: If they cannot.
        """
        raise ConfigError(
            f"{type(self).__name__} has one party only",
            where="--model.paradigm",
            remedy="choose Federated, SplitLearning or UShapedSplit",
        )

    def schedule_steps(self, rounds: int, asked: int | None) -> int:
        """Return how many optimiser steps the schedule of a run of some rounds spans.

        Raises:
            ConfigError: If the number asked for cannot be.
        """
        return asked or rounds

    def channel(self, cuts: Sequence[int] = ()) -> Channel:
        """Return what crosses between the parties: what is trained with, attacked and counted.

        Args:
            cuts: Where nothing is cut: the cuts to suppose.
        """
        return Channel.supposed(cuts, self.label)

    def defend(self, defence: Defence) -> None:
        """Let the parties do at their cuts what a defence says; called when cuts are placed.

        Raises:
            ConfigError: If it asks for something that this run has not.
        """
        raise ConfigError(
            f"{type(self).__name__} has no cut at which {defence.label} could act",
            where="--model.defence",
            remedy="choose SplitLearning or UShapedSplit, or leave the defence out",
        )

    def check_passes(self, batch_size: int, micro_batch_size: int | None) -> None:
        """Check the sizes of batches, before weights load.

        Raises:
            ConfigError: If a defence cannot work with so few samples at a time.
        """

    def check_processes(self, count: int) -> None:
        """Check the number of processes that train together.

        Raises:
            ConfigError: If the paradigm cannot use them.
        """

    def share_out(self, samples: Sequence[VQASample], seed: int) -> None:
        """Deal the training set to the clients.

        Raises:
            ConfigError: If there is not enough of it.
        """
        self.shards = draw_partition(
            samples,
            self.num_clients,
            name=self.partition,
            concentration=self.concentration,
            seed=seed,
        )

    def add_adapters(self, model: VisionLanguageModel, recipe: LoraRecipe, seed: int) -> None:
        """Give the model the adapters that will be trained."""
        model.add_lora(recipe.rank, recipe.alpha, recipe.dropout, seed)

    def adapters(self) -> tuple[str, ...]:
        """Return the names of all adapters."""
        return ("default",)

    def adapter_of(self, client: int) -> str:
        """Return the name of the adapter that a client trains."""
        return "default"

    def optimizer(self, model: VisionLanguageModel, recipe: LoraRecipe) -> Optimizer:
        """Return the optimiser whose learning rate the schedule sets."""
        return recipe.optimizer(model.parameters())

    @abstractmethod
    def step(
        self,
        run: Run,
        batch: VQABatch,
        optimizer: Optimizer,
        scheduler: LRScheduler,
        *,
        last: bool = False,
    ) -> StepReport | None:
        """Train on one batch; return None if the batch is only kept for a later step.

        Args:
            run: What is trained.
            batch: What all clients draw in this step.
            optimizer: What `optimizer` returned.
            scheduler: Its schedule, stepped once a batch.
            last: Whether it is the last batch of an epoch, after which nothing may be pending.
        """

    def parts(self, batch: VQABatch) -> list[tuple[int, VQABatch]]:
        """Return each client's rows of a batch, in the order of the clients."""
        owners = torch.tensor([self.shards.client(sample) for sample in batch.samples])
        if self.num_clients == 1:
            return [(0, batch)]
        clients = sorted(set(owners.tolist()))
        return [(client, batch[(owners == client).nonzero()[:, 0]]) for client in clients]

    @contextmanager
    def answering(self, model: VisionLanguageModel, client: int) -> Iterator[None]:
        """Let the model answer as one client and its server would, together."""
        yield

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beyond weights and optimiser."""
        return {"traffic": self.traffic.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.traffic.load(state["traffic"])

    def untrained_batches(self) -> int:
        """Return how many batches had been drawn, but not trained on, when the run stopped."""
        return 0

    def resume(self, batches: Sequence[VQABatch]) -> None:
        """Take those `untrained_batches`, read again."""

    def take_traffic(self) -> Traffic:
        """Return the traffic since the last call, and reset the count."""
        taken, self.traffic = self.traffic, Traffic()
        return taken


class Centralized(Paradigm):
    """One trainer holds all layers and all data: the reference of the other paradigms.

    On several processes every step is that of the batches of all of them together: gradients are
    averaged by the trainer, and the loss is normalised by the answer tokens of all processes.
    """

    label = "centralized"
    crosses = False

    def __init__(self) -> None:
        super().__init__()

    def sees(self, adapter_parameters: int) -> tuple[str, ...]:
        """Return who sees what, a sentence each."""
        return (
            "One party owns model and data: it sees every image, question and answer.",
            "Nothing crosses while training. The bytes stand for a cut where one would be made.",
        )

    def step(
        self,
        run: Run,
        batch: VQABatch,
        optimizer: Optimizer,
        scheduler: LRScheduler,
        *,
        last: bool = False,
    ) -> StepReport:
        """Run one optimiser step."""
        return centralized.step(
            run.model,
            batch,
            run.policy,
            run.encode,
            run.recipe,
            optimizer,
            scheduler,
            run.scaling,
            ranks.mean(answer_tokens(batch), run.model.device),
            run.first_cut,
        )


def merge_reports(reports: Sequence[StepReport]) -> StepReport:
    """Return one report of several parts of a batch; losses are weighted by answer tokens.

    >>> merge_reports([StepReport(1.0, 3, 10, 1), StepReport(2.0, 1, 20, 1)])
    StepReport(loss=1.25, tokens=4, kept=30, samples=2)
    """
    tokens = sum(report.tokens for report in reports)
    return StepReport(
        sum(report.loss * report.tokens for report in reports) / tokens,
        tokens,
        sum(report.kept for report in reports),
        sum(report.samples for report in reports),
    )
