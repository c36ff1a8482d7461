"""Adapters by party: one on the server's layers, one or several on those of the clients."""

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
    """Which adapters there are, and which of them a model computes with.

    Args:
        num_clients: Number of clients.
        private: Whether every client has an adapter of its own, or all hand over one.
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
        """Divide a model's one adapter into those of the parties, which start as parts of it.

        Args:
            model: The model, with the adapter that one trainer would start from.
            recipe: How adapters are trained.
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
        """Let the model compute with a client's adapter and the server's."""
        activate(model, (SERVER, self.of(client)))
        for name in self.names():
            for parameter in adapter_parameters(model, name):
                # PEFT freezes what is inactive, and checkpoints hold what is not frozen
                parameter.requires_grad_(True)

    def keep(self, model: VisionLanguageModel, client: int | None) -> None:
        """Leave in a model the server's adapter, and that of one client if there is one."""
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
            recipe: How adapters are trained.
            trained: Returns what the owner of an adapter trains.
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
