"""Adapters by party: one on the server's layers, and one or more on the clients' layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn
from torch.optim import Optimizer

from qpriv.models.llava.vision_language import VisionLanguageModel

from .adapter import activate
from .recipe import LoraRecipe

SERVER = "server"
"""Name of the adapter on the server's layers."""

ClientAdapters = Literal["handed_over", "private"]


def client_name(client: int) -> str:
    """Return the name of the adapter on a client's layers."""
    return f"client{client}"


@dataclass(frozen=True)
class PartyAdapters:
    """The parties' adapters, and which of them are active.

    Args:
        num_clients: Number of clients.
        private: Whether every client has its own adapter; if not, clients hand one over.
    """

    num_clients: int
    private: bool

    def of(self, client: int) -> str:
        """Return the name of the adapter that a client trains."""
        return client_name(client if self.private else 0)

    def names(self) -> tuple[str, ...]:
        """Return the names of all adapters, the server's first."""
        count = self.num_clients if self.private else 1
        return (SERVER, *(client_name(client) for client in range(count)))

    def divide(
        self, model: VisionLanguageModel, recipe: LoraRecipe, seed: int, served: Sequence[int]
    ) -> None:
        """Replace a model's adapter by adapters of the parties with the same initial weights.

        Args:
            model: The model, with the adapter that centralised training would start from.
            recipe: Training recipe of the adapters.
            seed: Seed of the run.
            served: The server's layers.
        """
        drawn = model.adapter_state()
        model.remove_lora()
        owned = [layer for layer in range(model.num_layers) if layer not in served]
        for name in self.names():
            layers = served if name == SERVER else owned
            model.add_lora(
                recipe.rank, recipe.alpha, recipe.dropout, seed, adapter=name, layers=layers
            )
            model.load_adapter_state({key: drawn[key] for key in model.adapter_state(name)}, name)
        self.activate(model, 0)

    def activate(self, model: VisionLanguageModel, client: int) -> None:
        """Activate a client's adapter and the server's."""
        activate(model, (SERVER, self.of(client)))
        for name in self.names():
            for parameter in adapter_parameters(model, name):
                # PEFT freezes inactive adapters, but checkpoints hold only trainable weights
                parameter.requires_grad_(True)

    def keep(self, model: VisionLanguageModel, client: int | None) -> None:
        """Keep only the server's adapter, plus one client's if given, and delete the others."""
        own = [SERVER] if client is None else [SERVER, self.of(client)]
        activate(model, own)
        for name in self.names():
            if name not in own:
                model.llava.delete_adapter(name)

    def optimizer(
        self, recipe: LoraRecipe, trained: Callable[[str], list[nn.Parameter]]
    ) -> Optimizer:
        """Return the recipe's optimiser with a group of parameters for each party.

        Args:
            recipe: Training recipe of the adapters.
            trained: Returns the trained weights of an adapter's owner.
        """
        optimizer = recipe.optimizer(trained(SERVER))
        optimizer.param_groups[0]["name"] = SERVER
        for name in self.names()[1:]:
            optimizer.add_param_group({"params": trained(name), "name": name})
        return optimizer


def adapter_parameters(model: VisionLanguageModel, adapter: str) -> list[nn.Parameter]:
    """Return the weights of one adapter."""
    ending = f".{adapter}.weight"
    return [
        parameter
        for name, parameter in model.named_parameters()
        if name.endswith(ending) and ".lora_" in name
    ]
