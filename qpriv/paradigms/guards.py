"""`Guards`: one defence, with separate weights for each client."""

import copy
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from qpriv.errors import CheckpointError
from qpriv.split import Defence

from .party_adapters import SERVER, client_name
from .seeding import preserved_random


class Guards(nn.Module):
    """One defence for all clients, or one copy per client with a shared receiver.

    Args:
        defence: The first client's defence; None without a defence.
    """

    def __init__(self, defence: Defence | None = None) -> None:
        super().__init__()
        self.clients = nn.ModuleList([] if defence is None else [defence])

    def of(self, client: int) -> Defence | None:
        """Return the defence of a client, or None."""
        if not len(self.clients):
            return None
        found = self.clients[client if client < len(self.clients) else 0]
        assert isinstance(found, Defence)
        return found

    def alone(self, client: int) -> "Guards":
        """Return the guards of one client alone."""
        return Guards(self.of(client))

    def build(self, width: int, copies: int, seed: int, device: torch.device) -> None:
        """Build the defence's trained modules, and copy them for every client.

        Args:
            width: Width of the decoder.
            copies: Number of clients with their own weights.
            seed: Seed of the run, so that all parties start from the same weights.
            device: Device of the weights.
        """
        if (first := self.of(0)) is None:
            return
        with preserved_random():
            torch.manual_seed(seed)
            first.build(width)
        for name, parameter in first.named_parameters():
            if not name.startswith(("sender.", "receiver.")):
                parameter.requires_grad_(False)
        first.to(device)
        # the server uses one receiver for all clients
        shared = first.receiver
        for _ in range(copies - 1):
            self.clients.append(copy.deepcopy(first, {id(shared): shared}))

    def trained(self, party: str) -> list[nn.Parameter]:
        """Return the defence's weights that a party trains, by the name of its adapter."""
        if (own := self.of(0)) is None:
            return []
        part = own.receiver
        if party != SERVER:
            names = {client_name(number): number for number in range(len(self.clients))}
            client = self.of(names[party])
            assert client is not None
            part = client.sender
        return [parameter for parameter in part.parameters() if parameter.requires_grad]

    def untrained(self) -> dict[str, Tensor]:
        """Return buffers and frozen weights, which checkpoints hold apart from trained ones."""
        frozen = {name: p for name, p in self.named_parameters() if not p.requires_grad}
        return {**frozen, **dict(self.named_buffers())}

    def export(self, file: Path) -> None:
        """Write all weights of the defence, by client, if there are any."""
        export_weights(self, file)

    @torch.no_grad()
    def load_untrained(self, given: Mapping[str, Tensor]) -> None:
        """Restore what `untrained` returned.

        Raises:
            CheckpointError: If a tensor is missing, because another defence was saved.
        """
        own = self.untrained()
        if missing := sorted(own.keys() - given.keys()):
            raise CheckpointError(
                f"it has no {missing[0]} of the defence",
                where="--ckpt_path",
                remedy="give the defence it was trained with",
            )
        for name, value in own.items():
            value.copy_(given[name])


def export_weights(part: nn.Module, file: Path) -> None:
    """Write the weights of a part of a defence, if it has any."""
    if weights := part.state_dict():
        file.parent.mkdir(parents=True, exist_ok=True)
        # the shared receiver is written once per client
        save_file({name: value.clone().contiguous() for name, value in weights.items()}, file)
