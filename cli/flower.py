"""A federated run as a Flower app, whose parties Flower starts and connects.

``serverapp = "cli.flower:server"`` and ``clientapp = "cli.flower:client"`` are its components. The
app's ``settings`` are what ``qpriv server`` and ``qpriv client`` would be typed alike, ``server``
and ``client`` what only one of them is; a node's own ``client`` is its number, and its ``words``
come last.
"""

import shlex
from collections.abc import Mapping
from functools import partial
from typing import cast

from lightning_modules import VQAModule
from qpriv.errors import ConfigError
from qpriv.paradigms import Federated, Run
from qpriv.paradigms.adapter import export_adapters
from qpriv.paradigms.weights import load_weights, named_weights
from qpriv.remote import LocalClient, terms_of
from qpriv.remote.flower import AdapterMean, run_config, train

from .client import ClientData
from .console import quiet
from .parties import PartyCLI, steps_of

# behind `qpriv.remote.flower`, which says what to do where Flower is missing
from flwr.app import ArrayRecord, Context, Message  # isort: skip
from flwr.clientapp import ClientApp  # isort: skip
from flwr.serverapp import Grid, ServerApp  # isort: skip

server = ServerApp()
client = ClientApp()


@server.main()  # type: ignore[untyped-decorator]
def serve(grid: Grid, context: Context) -> None:
    """Average what clients learn, round by round, and export the last adapter."""
    quiet()
    cli = PartyCLI(["server", *_words(context.run_config, "settings", "server")], has_data=False)
    paradigm, module = _paradigm(cli), cli.module_of_party()
    model = module.model
    config = run_config(steps_of(cli, module), _terms(module))
    result = AdapterMean(paradigm).start(
        grid,
        ArrayRecord(named_weights(model)),
        num_rounds=cli.given("rounds"),
        train_config=config,
    )
    load_weights(model, result.arrays.to_torch_state_dict())
    export_adapters(model, ("default",), cli.out / "adapter")
    print(f"all rounds are done: the adapter is in {cli.out / 'adapter'}")


@client.train()  # type: ignore[untyped-decorator]
def learn(message: Message, context: Context) -> Message:
    """Train one round on the node's own data."""
    quiet()
    number = str(context.node_config["client"])
    words = _words(context.run_config, "settings", "client")
    own = _words(context.node_config, "words")
    cli = PartyCLI(["client", *words, "--client", number, *own], has_data=True)
    paradigm, module = _paradigm(cli), cli.module_of_party()
    data = ClientData(cli, module)
    module.model.train()
    run = Run(module.model, module.policy, module.encode, module.recipe, module.seed)
    work = partial(data.work, local_steps=paradigm.local_steps)
    return train(message, LocalClient(data.number, run, paradigm, work), _terms(module))


def _paradigm(cli: PartyCLI) -> Federated:
    """Return the paradigm of a run, before its model is loaded."""
    paradigm = cast(VQAModule, cli.model).paradigm
    if paradigm.exchanges != "adapters":
        raise ConfigError(
            f"Flower has no place for {type(paradigm).__name__}",
            where="--model.paradigm",
            remedy="choose Federated, or start `qpriv server` and `qpriv client`",
        )
    return cast(Federated, paradigm)


def _terms(module: VQAModule) -> dict[str, str]:
    digest = module.frozen_identity()["backbone"]
    return terms_of(digest, module.paradigm, module.recipe, module.seed)


def _words(config: Mapping[str, object], *names: str) -> list[str]:
    return [word for name in names for word in shlex.split(str(config.get(name, "")))]
