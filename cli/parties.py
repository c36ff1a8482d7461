"""``qpriv server``, and the configuration that it reads as every client does."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import lightning as L
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from lightning_modules import VQAModule
from qpriv.errors import ConfigError
from qpriv.paradigms import Federated
from qpriv.paradigms.adapter import export_adapters
from qpriv.paradigms.guards import export_weights
from qpriv.paradigms.split import SplitParadigm
from qpriv.paradigms.weights import load_weights, named_weights
from qpriv.remote import RemoteFederatedServer, RemoteServer, RemoteSplitServer, Snapshots, terms_of
from qpriv.split.layers import shed
from qpriv.transport import SERVER_NAME, Identity

from .console import quiet
from .parser import reading
from .train import check_yaml, config_name, shipped

MIB = 2**20


class PartyCLI(LightningCLI):
    """A configuration as `fit` reads it, built for a party that has no trainer of its own."""

    def __init__(self, words: Sequence[str], *, has_data: bool) -> None:
        self.command = words[0]
        args = [shipped(word) for word in words[1:]]
        check_yaml(args)
        self.name = config_name(args) or "run"
        super().__init__(
            VQAModule,
            L.LightningDataModule if has_data else None,
            save_config_callback=None,
            trainer_defaults={"logger": False, "enable_checkpointing": False},
            args=args,
            run=False,
            **reading(),
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add what only parties need."""
        parser.add_argument("--certificates", type=Path, default=None, help="folder of PEM files")
        parser.add_argument("--max_message", type=int, default=256, help="largest message, MiB")
        parser.add_argument("--out", type=Path, default=None, help="where this party writes")
        if self.command == "server":
            parser.add_argument("--listen", default="0.0.0.0:8470", help="host:port")
            parser.add_argument("--rounds", type=int, required=True, help="rounds of the run")
            parser.add_argument("--steps", type=int, default=None, help="steps of the schedule")
        else:
            parser.add_argument("--server", default="localhost:8470", help="host:port")
            parser.add_argument("--client", type=int, required=True, help="its number, from 0")
            parser.add_argument("--shard", type=bool, default=False, help="take one shard of data")
            parser.add_argument(
                "--secret", type=int | None, default=None, help="seed of its defence's draws"
            )
            parser.add_argument("--patience", type=float, default=600.0, help="seconds to wait")

    def given(self, name: str) -> Any:  # noqa: ANN401 - several kinds
        """Return an option."""
        return self.config[name]

    @property
    def out(self) -> Path:
        """Return where this party writes."""
        label = self.command if self.command == "server" else f"client{self.given('client')}"
        return self.given("out") or Path("runs") / f"{self.name}-{label}"

    def identity(self, name: str) -> Identity:
        """Return the certificate of a party of this run.

        Raises:
            ConfigError: If a file of it is missing.
        """
        folder: Path | None = self.given("certificates")
        if folder is None:
            raise ConfigError(
                "no certificates are given",
                where="--certificates",
                remedy="give a folder with ca.pem, and the party's own .pem and .key",
            )
        return Identity.read(folder, name)

    def module_of_party(self) -> VQAModule:
        """Return the module, its model loaded onto the trainer's device.

        Raises:
            ConfigError: If the paradigm has no other party, or hands weights from client to client,
                or the policy keeps a ledger.
        """
        module = cast(VQAModule, self.model)
        if module.policy.ledger is not None:
            raise ConfigError(
                f"a party's snapshots hold no ledger, which {module.policy.label} needs",
                where="--model.policy",
                remedy="use mask per_question or per_image without image_budget",
            )
        module.paradigm.check_divisible()
        check_precision(self.trainer)
        module.trainer = self.trainer
        recipe = module.recipe
        batch_size = getattr(self.datamodule, "batch_size", recipe.batch_size)
        module.paradigm.check_passes(batch_size, recipe.micro_batch_size)
        module.to(self.trainer.strategy.root_device)
        module.configure_model()
        return module


def check_precision(trainer: L.Trainer) -> None:
    """Check that parties are not asked for a precision that only a trainer's steps would have.

    Raises:
        ConfigError: If they are.
    """
    if trainer.precision != "32-true":
        raise ConfigError(
            f"parties take their steps without a trainer, and so not in {trainer.precision}",
            where="--trainer.precision",
            remedy="leave it out, and set --model.dtype bfloat16",
        )


def run(words: Sequence[str]) -> None:
    """Run the server.

    Args:
        words: ``server`` and its options.
    """
    serve(read_party(words, has_data=False))


def read_party(words: Sequence[str], *, has_data: bool) -> PartyCLI:
    """Read what a party was told, before anything is loaded.

    Raises:
        ConfigError: If there is nothing to connect parties with.
    """
    quiet()
    if importlib.util.find_spec("grpc") is None:
        raise ConfigError("grpcio is not installed", remedy="pip install 'qpriv[grpc]'")
    return PartyCLI(words, has_data=has_data)


def serve(cli: PartyCLI) -> None:
    """Serve a run until all of its clients are done."""
    from qpriv.transport.grpc_connection import GrpcServer

    identity = cli.identity(SERVER_NAME)
    if cli.given("rounds") < 1:
        raise ConfigError(f"rounds is {cli.given('rounds')}", remedy="choose 1 or more")
    module = cli.module_of_party()
    remote_server = _remote_server(cli, module)
    limit = cli.given("max_message") * MIB
    server = GrpcServer(remote_server, cli.given("listen"), identity, remote_server.clients, limit)
    server.start()
    print(
        f"round {remote_server.round} of {remote_server.rounds}, listening on port {server.port}",
        flush=True,
    )
    try:
        remote_server.finished.wait()
    finally:
        server.stop()
    if isinstance(remote_server, RemoteFederatedServer):
        load_weights(
            module.model, {n: v.to(module.device) for n, v in remote_server.adapter.items()}
        )
    # the server's adapter is the first
    export_adapters(module.model, module.paradigm.adapters()[:1], cli.out / "adapter")
    if (defence := module.guards.of(0)) is not None:
        export_weights(defence.receiver, cli.out / "defence.safetensors")
    print(f"all clients are done: the adapter is in {cli.out / 'adapter'}")


def _remote_server(cli: PartyCLI, module: VQAModule) -> RemoteServer:
    """Return the server of a run, which keeps its own layers of the model and nothing else."""
    paradigm, model, rounds = module.paradigm, module.model, cli.given("rounds")
    terms = terms_of(module.frozen_identity()["backbone"], paradigm, module.recipe, module.seed)
    steps = steps_of(cli, module)
    length = {"rounds": str(rounds), "steps": str(steps)}
    snapshots = Snapshots(cli.out / "rounds", {**terms, **length})
    if paradigm.exchanges == "adapters":
        shed(model)
        start, own = named_weights(model), cast(Federated, paradigm)
        return RemoteFederatedServer(start, own, terms, rounds, steps, snapshots, module.seed)
    split = cast(SplitParadigm, paradigm)
    split.become(model, None)
    server = split.server(model, module.recipe, rounds, seed=module.seed)
    shed(model, server.segment)
    return RemoteSplitServer(server, terms, split.num_clients, rounds, snapshots, module.seed)


def steps_of(cli: PartyCLI, module: VQAModule) -> int:
    """Return how many optimiser steps the schedule spans.

    Raises:
        ConfigError: If a split is given another number than its rounds.
    """
    return module.paradigm.schedule_steps(cli.given("rounds"), cli.given("steps"))
