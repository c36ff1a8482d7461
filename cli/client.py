"""``qpriv client``: data, training and evaluation of one client."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from tqdm import tqdm

from datamodules.base import VQADataModule
from lightning_modules import VQAModule
from qpriv.attacks.victim import describe
from qpriv.datasets.sample import VQASample
from qpriv.datasets.sampler import EpochSampler, ResumableLoader
from qpriv.errors import ConfigError
from qpriv.metrics.answers import score_sample
from qpriv.metrics.means import IMAGE_GROUP, RATE, mean_result
from qpriv.models.batch import VQABatch
from qpriv.paradigms import Federated, Run
from qpriv.paradigms.adapter import export_adapters
from qpriv.paradigms.guards import export_weights
from qpriv.paradigms.split import SplitParadigm
from qpriv.paradigms.split_client import SplitClient
from qpriv.paradigms.split_server import Answers
from qpriv.remote import (
    LocalWork,
    RemoteClient,
    RemoteFederatedClient,
    RemoteSplitClient,
    Snapshots,
    terms_of,
)
from qpriv.result import Result, append_results, stamp
from qpriv.split import Direction
from qpriv.split.traffic import SENT
from qpriv.transport import Connection, client_peer

from .loggers import JsonLogger
from .parties import MIB, PartyCLI, read_party


def run(words: Sequence[str]) -> None:
    """Run a client.

    Args:
        words: ``client`` and its options.
    """
    take_part(read_party(words, has_data=True))


class ClientData:
    """A client's own rows of every step, the same each time they are asked for.

    Args:
        cli: The configuration.
        module: The module, whose preprocessor makes the batches.

    Raises:
        ConfigError: If the data are no questions about images, or there is no such client.
        DataError: If the model does not take a text, and the data do not drop such rows.
    """

    def __init__(self, cli: PartyCLI, module: VQAModule) -> None:
        data = cli.datamodule
        if not isinstance(data, VQADataModule):
            raise ConfigError("a client needs data", where="--data", remedy="give a VQA set")
        self.number: int = cli.given("client")
        self.paradigm, self.data, self.module = module.paradigm, data, module
        if not 0 <= self.number < self.paradigm.num_clients:
            raise ConfigError(
                f"client is {self.number}",
                where="--client",
                remedy=f"num_clients is {self.paradigm.num_clients}, and the first is 0",
            )
        data.use(module.preprocessor)
        self.shares = cli.given("shard") and self.paradigm.num_clients > 1
        if self.shares:
            self.paradigm.share_out(data.members(), module.seed)
        samples = data.loaded("train")
        data.loaded("val")  # answered in the end: what is wrong with it is told before the training
        self.loader = ResumableLoader(
            samples,
            batch_size=data.batch_size,
            sampler=EpochSampler(samples, seed=data.run_seed),  # type: ignore[arg-type]
            collate=module.preprocessor,
        )

    def rows(self, step: int) -> VQABatch | None:
        """Return the client's rows of a step's batch, or None where it has none."""
        epoch, number = divmod(step, len(self.loader))
        self.loader.sampler.set_epoch(epoch)
        (batch,) = self.loader.batches(number, number + 1)
        batch = batch.to(self.module.model.device)
        return dict(self.paradigm.parts(batch)).get(self.number) if self.shares else batch

    def work(self, number: int, local_steps: int) -> LocalWork:
        """Return what is trained on in a federated round, which ends with its epoch."""
        whole = len(self.loader)
        epoch, place = divmod(number, -(-whole // local_steps))
        first, last = place * local_steps, min((place + 1) * local_steps, whole)
        steps = range(epoch * whole + first, epoch * whole + last)
        return LocalWork(steps.start, [self.rows(step) for step in steps])

    def validation(self) -> list[VQASample]:
        """Return the samples this client is evaluated on."""
        own = self.paradigm.shards.client if self.shares else lambda sample: self.number
        return [sample for sample in self.data.samples("val") if own(sample) == self.number]


def take_part(cli: PartyCLI) -> None:
    """Train with the others, then answer the validation split and export the adapter."""
    from qpriv.transport.grpc_connection import GrpcConnection

    peer = client_peer(cli.given("client"))
    identity = cli.identity(peer)
    limit = cli.given("max_message") * MIB
    module = cli.module_of_party()
    party = _Party(cli, module, lambda: GrpcConnection(cli.given("server"), identity, limit))
    party.remote_client.run()
    party.finish()
    print(f"{peer} is done: its adapter is in {cli.out / 'adapter'}")


class _Party:
    """One client of a run: its client, and the figures it writes."""

    def __init__(self, cli: PartyCLI, module: VQAModule, connect: Callable[[], Connection]) -> None:
        self.module, self.out = module, cli.out
        self.secret: int | None = cli.given("secret")
        self.data = ClientData(cli, module)
        self.log = JsonLogger(cli.out)
        self.samples, self.logged = 0, False
        paradigm = module.paradigm
        backbone = module.frozen_identity()["backbone"]
        terms = terms_of(backbone, paradigm, module.recipe, module.seed)
        settings: dict[str, Any] = {"patience": cli.given("patience"), "on_round": self._on_round}
        module.model.train()
        self._run = Run(module.model, module.policy, module.encode, module.recipe, module.seed)
        self.remote_client: RemoteClient
        if paradigm.exchanges == "adapters":
            own = cast(Federated, paradigm)
            work = partial(self._work, own)
            self.remote_client = RemoteFederatedClient(
                connect, terms, self.data.number, self._run, own, work, **settings
            )
            return
        self.remote_client = RemoteSplitClient(
            connect,
            terms,
            self.data.number,
            partial(self._build, cast(SplitParadigm, paradigm)),
            self._rows,
            Snapshots(cli.out / "rounds", terms),
            module.seed,
            on_end=self._answer_across,
            **settings,
        )

    def finish(self) -> None:
        """Write the figures that need no server, and the adapter."""
        paradigm, model = self.module.paradigm, self.module.model
        if paradigm.exchanges == "adapters":
            model.eval()
            self._report(self._answer)
        export_adapters(model, (paradigm.adapter_of(self.data.number),), self.out / "adapter")
        if (defence := self.module.guards.of(self.data.number)) is not None:
            export_weights(defence.sender, self.out / "defence.safetensors")

    def _build(self, paradigm: SplitParadigm, server: Answers, steps: int) -> SplitClient:
        paradigm.become(self._run.model, self.data.number)
        return paradigm.client(self._run, self.data.number, server, steps, secret=self.secret)

    def _rows(self, step: int) -> VQABatch | None:
        rows = self.data.rows(step)
        self.samples += 0 if rows is None else len(rows)
        return rows

    def _work(self, paradigm: Federated, number: int) -> LocalWork:
        work = self.data.work(number, paradigm.local_steps)
        self.samples += sum(len(rows) for rows in work.batches if rows is not None)
        return work

    def _on_round(self, number: int, loss: float | None) -> None:
        if not self.logged:
            # what a restart trains again replaces the lines of its last life
            self.log.rewind(number)
            self.logged = True
        if loss is not None:
            self.log.log_metrics({"train/loss": loss}, number)

    def _answer_across(self, client: SplitClient) -> None:
        self._report(lambda batch: client.answer(batch, self.module.hparams["max_new_tokens"]))

    def _answer(self, batch: VQABatch) -> list[str]:
        model = self.module.model
        features = self.module.encode(batch, self.module.policy.needs)
        decision = self.module.policy.decide(features, batch.samples)
        longest = self.module.hparams["max_new_tokens"]
        return model.answer(batch, features, decision, max_new_tokens=longest)

    def _report(self, answer: Callable[[VQABatch], list[str]]) -> None:
        """Append accuracy on the validation split, and bytes a training sample."""
        results = [*self._bytes(), self._accuracy(answer)]
        results = stamp(results, epoch=None, measured_by="qpriv client", **describe(self.module))
        append_results(self.out / "results.jsonl", results)
        print("; ".join(f"{own.name} {own.value:.4g}" for own in results if own.value is not None))

    def _accuracy(self, answer: Callable[[VQABatch], list[str]]) -> Result:
        samples, size = self.data.validation(), self.data.data.eval_batch_size
        rule = self.module.hparams["answer_rule"] or self.data.data.answer_rule
        scores: list[float] = []
        for start in tqdm(range(0, len(samples), size), desc="validation", leave=False):
            part = samples[start : start + size]
            batch = self.module.preprocessor(part).to(self.module.model.device)
            scores += [
                score_sample(said, sample, rule)
                for said, sample in zip(answer(batch), part, strict=True)
            ]
        groups = [f"{sample.dataset}/{sample.group_id}" for sample in samples]
        if not samples:
            return Result(name="accuracy", value=None, n=0, status="not applicable")
        found = mean_result("accuracy", scores, {IMAGE_GROUP: groups}, bounds=RATE)
        return replace(found, dataset=samples[0].dataset)

    def _bytes(self) -> list[Result]:
        sums = {way: 0 for way in (Direction.UP, Direction.DOWN)}
        for kind, size in self.remote_client.crossed().items():
            sums[Direction(kind.rpartition("/")[2])] += size
        note = "training, a sample, since this process started"
        return [
            Result(
                name=SENT[way].name,
                value=size / self.samples,
                n=self.samples,
                unit="bytes",
                note=note,
            )
            for way, size in sums.items()
            if self.samples
        ]
