"""`Guards`: a defence as each client runs it, and the gradient of a client's own terms."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from qpriv.errors import CheckpointError
from qpriv.split import Defence
from qpriv.split.channel import Open

from .clipping import clip_factor, sum_of_squares
from .party_adapters import SERVER, client_name
from .seeding import preserved_random


class Guards(nn.Module):
    """One defence for all clients, or of each client its own with one receiver for all.

    Args:
        defence: The first client's; None where there is no defence.
    """

    def __init__(self, defence: Defence | None = None) -> None:
        super().__init__()
        self.clients = nn.ModuleList([] if defence is None else [defence])

    def of(self, client: int) -> Defence | None:
        """Return the defence that a client runs with the server."""
        if not len(self.clients):
            return None
        found = self.clients[client if client < len(self.clients) else 0]
        assert isinstance(found, Defence)
        return found

    def alone(self, client: int) -> "Guards":
        """Return what one client needs of them: its own defence."""
        return Guards(self.of(client))

    def build(self, width: int, copies: int, seed: int, device: torch.device) -> None:
        """Let the defence make what is trained, and give every client its own.

        Args:
            width: Width of the decoder.
            copies: Number of clients with weights of their own.
            seed: Seed of the run: all parties start from the same numbers.
            device: Where they compute.
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
        # a server has one receiver, whoever sends
        shared = first.receiver
        for _ in range(copies - 1):
            self.clients.append(copy.deepcopy(first, {id(shared): shared}))

    def trained(self, party: str) -> list[nn.Parameter]:
        """Return what a party trains of the defence, by the name of its adapter."""
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
        """Return buffers and frozen weights: a checkpoint holds them apart from what is trained."""
        frozen = {name: p for name, p in self.named_parameters() if not p.requires_grad}
        return {**frozen, **dict(self.named_buffers())}

    def export(self, file: Path) -> None:
        """Write all weights of the defence, by client, where there are any."""
        export_weights(self, file)

    @torch.no_grad()
    def load_untrained(self, given: Mapping[str, Tensor]) -> None:
        """Take back what `untrained` returned.

        Raises:
            CheckpointError: If something is missing: it was saved without this defence.
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
    """Write the weights of a part of a defence, where it has any."""
    if weights := part.state_dict():
        file.parent.mkdir(parents=True, exist_ok=True)
        # a receiver that all share is written for each of them
        save_file({name: value.clone().contiguous() for name, value in weights.items()}, file)


class OwnGradient:
    """The gradient of the terms that a client owes itself, kept apart from that of the answers.

    No number of the server's scales it: it has a clip of its own, and is added when the gradient
    of the answers has been clipped.

    Args:
        parameters: What the client trains.
        clip: The largest norm.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], clip: float) -> None:
        self.parameters, self.clip = parameters, clip
        self._sums: dict[nn.Parameter, Tensor] = {}
        self._opened: Open | None = None

    def watch(self, opened: Open) -> None:
        """Take the terms of an open channel from now on."""
        self._opened = opened

    def take(self, share: float) -> None:
        """Take the terms of the pass that has just gone through, before its backward pass.

        Args:
            share: The pass's share of the client's samples of this step.
        """
        assert self._opened is not None
        self.learn(self._opened.take_terms(), share)

    def learn(self, terms: Sequence[Tensor], share: float) -> None:
        """Add the gradient of some terms; their graph stays, for the gradient of the answers."""
        for term in terms:
            if not term.requires_grad:
                continue
            found = torch.autograd.grad(
                term * share, self.parameters, retain_graph=True, allow_unused=True
            )
            for parameter, new in zip(self.parameters, found, strict=True):
                if new is not None:
                    known = self._sums.get(parameter)
                    self._sums[parameter] = new if known is None else known + new

    @torch.no_grad()
    def add(self, scale: float = 1.0) -> None:
        """Add what was taken, clipped, to the parameters' gradients.

        Args:
            scale: By what those are multiplied, where the loss is scaled.
        """
        factor = clip_factor(sum_of_squares(self._sums.values()), self.clip) * scale
        for parameter, own in self._sums.items():
            own = own * factor
            parameter.grad = own if parameter.grad is None else parameter.grad + own
