"""Defences of one file each, as a user would write them; nothing else knows of them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from qpriv.defences import Defence
from qpriv.split import Direction, Part, Remaining, Requirements, Site, StageContext, Stages


class Narrow(Defence):
    """Sends fewer numbers a token, trained on both sides, and makes its own client's smaller."""

    needs = Requirements(trained=True)

    def __init__(self, size: int = 16, weight: float = 1.0) -> None:
        super().__init__()
        self.size, self.weight = size, weight
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.asked: list[StageContext] = []

    @property
    def label(self) -> str:
        return f"narrow({self.size},{self.weight:g})"

    def build(self, hidden: int) -> None:
        narrow, wide = (hidden, self.size), (self.size, hidden)
        self.sender = nn.ModuleList([nn.Linear(*narrow), nn.Linear(*wide)])
        self.receiver = nn.ModuleList([nn.Linear(*wide), nn.Linear(*narrow)])

    def width(self, hidden: int) -> int:
        return self.size

    def stages(self, site: Site) -> Stages:
        if site.direction is Direction.DOWN:  # the server sends, the client receives
            return Stages(
                encode=lambda rows, context: self.receiver[1](rows),
                decode=lambda rows, context: self.sender[1](rows),
            )
        return Stages(
            encode=lambda rows, context: self.sender[0](rows),
            decode=lambda rows, context: self.receiver[0](rows),
        )

    def loss(self, crossed: Tensor, context: StageContext) -> Tensor | None:
        self.seen += 1
        self.asked.append(context)
        return self.weight * crossed.square().mean() if self.weight else None


class Withdraw(Defence):
    """Lets no image token cross."""

    withdraws = True

    @property
    def label(self) -> str:
        return "withdraw"

    def stages(self, site: Site) -> Stages:
        return Stages(encode=self.without_image if site.direction is Direction.UP else None)

    def without_image(self, rows: Tensor, context: StageContext) -> Tensor | Remaining:
        if context.token:
            return rows
        places = (~context.is_image).nonzero()[:, 0]
        return Remaining(rows[places], places)


class Mean(Defence):
    """Lets the server compute with the mean of all clients' first rows."""

    needs = Requirements(clients=2, together=True)

    @property
    def label(self) -> str:
        return "mean"

    def join(self, parts: Sequence[Part]) -> Sequence[Tensor]:
        count = min(len(part.rows) for part in parts)
        mean = torch.stack([part.rows[:count] for part in parts]).mean(dim=0)
        return [torch.cat((mean, part.rows[count:])) for part in parts]


class Crowd(Defence):
    """Needs more samples at a time than anybody has."""

    needs = Requirements(batch_size=1000)

    @property
    def label(self) -> str:
        return "crowd"
