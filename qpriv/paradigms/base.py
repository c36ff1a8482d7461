"""`Paradigm`: who owns which layers and data, and who steps when; `Centralized` has one party."""

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
    """The objects that a fine-tune needs, in every paradigm.

    Args:
        model: The model, with the adapters that the paradigm added.
        policy: The pruning policy, run by the owner of the data.
        encode: The frozen encoders, run by the owner of the data.
        recipe: Training recipe of the adapters.
        seed: Seed of the run.
        scaling: Runs backward passes and optimiser steps, with the trainer's loss scaling.
        first_cut: Layer before which kept tokens are counted if the paradigm has no cut.
    """

    model: VisionLanguageModel
    policy: PruningPolicy
    encode: Encode
    recipe: LoraRecipe
    seed: int = 0
    scaling: Scaling = field(default_factory=OwnScaling)
    first_cut: int = 0


class Paradigm(ABC):
    """A division of model and data among parties.

    All paradigms use the same model, recipe, schedule and batches. A batch holds the samples of
    all clients for one step: each client takes the rows whose images are in its shard.

    Args:
        num_clients: Number of clients.
        partition: How images are dealt to the clients.
        concentration: Concentration of ``dirichlet``; smaller values make shards less alike.

    Raises:
        ConfigError: If a number is out of range.
    """

    label: ClassVar[str]
    """Name in results and reports."""

    clients_on_ranks: ClassVar[bool] = False
    """Whether processes share out the clients, and so all read the same batches."""

    crosses: ClassVar[bool] = True
    """Whether anything crosses between parties in training."""

    exchanges: ClassVar[Literal["adapters", "layers"] | None] = None
    """What separate parties exchange: adapters of whole models, or tensors between the layers of
    one model; None with a single party."""

    labels_cross: ClassVar[bool] = False
    """Whether the server computes the loss."""

    codec: Codec | None = None
    """Codec of activations and gradients; None sends them as computed."""

    bucket: int = 1
    """Messages are padded to a multiple of this many tokens per sample."""

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
        """The defence at the cuts."""
        self.metrics = {}

    @property
    def name(self) -> str:
        """Return the label, with the settings that distinguish its runs."""
        return self.label

    def place(self, num_layers: int) -> tuple[int, ...]:
        """Return the cuts in a decoder of ``num_layers`` layers; the default has none.

        Raises:
            ConfigError: If the cuts do not fit into the decoder.
        """
        return ()

    def supposed_cuts(self, num_layers: int) -> tuple[int, ...]:
        """Return hypothetical cuts for a forecast, in a decoder of ``num_layers`` layers."""
        return (num_layers // 2,)

    def server_layers(self, num_layers: int) -> range:
        """Return the decoder layers that the server owns."""
        return range(0)

    def round_numbers(self, adapter_parameters: int) -> int:
        """Return the number of weights that a client sends per round."""
        return 0

    @abstractmethod
    def sees(self, adapter_parameters: int) -> tuple[str, ...]:
        """Return sentences that say who sees what; the cuts must be placed.

        Args:
            adapter_parameters: Number of trained parameters of one adapter.
        """

    def terms(self) -> dict[str, object]:
        """Return the settings that parties must share, besides recipe, seed and client count."""
        return {}

    def check_divisible(self) -> None:
        """Check that the parties can run as separate processes.

        Raises:
            ConfigError: If they cannot.
        """
        raise ConfigError(
            f"{type(self).__name__} has one party only",
            where="--model.paradigm",
            remedy="choose Federated, SplitLearning or UShapedSplit",
        )

    def schedule_steps(self, rounds: int, asked: int | None) -> int:
        """Return the optimiser steps that the schedule spans.

        Args:
            rounds: Number of rounds.
            asked: Number of steps that the user asked for; None for the default.

        Raises:
            ConfigError: If the paradigm cannot take the number asked for.
        """
        return asked or rounds

    def channel(self, cuts: Sequence[int] = ()) -> Channel:
        """Return the channel between the parties, for training, attacks and byte counts.

        Args:
            cuts: Hypothetical cuts, for a paradigm without its own.
        """
        return Channel.supposed(cuts, self.label)

    def defend(self, defence: Defence) -> None:
        """Set the defence at the cuts, after the cuts are placed.

        Raises:
            ConfigError: If the run does not meet the defence's requirements.
        """
        raise ConfigError(
            f"{type(self).__name__} has no cut at which {defence.label} could act",
            where="--model.defence",
            remedy="choose SplitLearning or UShapedSplit, or leave the defence out",
        )

    def check_passes(self, batch_size: int, micro_batch_size: int | None) -> None:
        """Check the batch sizes before weights load.

        Raises:
            ConfigError: If a defence needs more samples per pass.
        """

    def check_processes(self, count: int) -> None:
        """Check the number of processes that train together.

        Raises:
            ConfigError: If the paradigm cannot use them.
        """

    def share_out(self, samples: Sequence[VQASample], seed: int) -> None:
        """Deal the training set to the clients.

        Raises:
            ConfigError: If there are too few images.
        """
        self.shards = draw_partition(
            samples,
            self.num_clients,
            name=self.partition,
            concentration=self.concentration,
            seed=seed,
        )

    def add_adapters(self, model: VisionLanguageModel, recipe: LoraRecipe, seed: int) -> None:
        """Add the adapters to train to the model."""
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
            run: Model, policy and recipe of the run.
            batch: Samples of all clients for this step.
            optimizer: The optimiser that `optimizer` returned.
            scheduler: Its schedule, stepped once per batch.
            last: Whether this is the last batch of an epoch, after which no batch may be pending.
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
        """Let the model answer as one client together with its server."""
        yield

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint must hold besides weights and optimiser."""
        return {"traffic": self.traffic.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.traffic.load(state["traffic"])

    def untrained_batches(self) -> int:
        """Return the number of batches drawn but not yet trained on when the run stopped."""
        return 0

    def resume(self, batches: Sequence[VQABatch]) -> None:
        """Take the `untrained_batches`, which the caller has read again."""

    def take_traffic(self) -> Traffic:
        """Return the traffic since the last call, and reset the count."""
        taken, self.traffic = self.traffic, Traffic()
        return taken


class Centralized(Paradigm):
    """One trainer owns all layers and data: the reference for the other paradigms.

    On several processes, one step trains on the batches of all of them: the trainer averages the
    gradients, and the loss is normalised by the answer tokens of all processes.
    """

    label = "centralized"
    crosses = False

    def __init__(self) -> None:
        super().__init__()

    def sees(self, adapter_parameters: int) -> tuple[str, ...]:
        """Return sentences that say who sees what."""
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
    """Merge the reports of parts of a batch; losses are weighted by answer tokens.

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
