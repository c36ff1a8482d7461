"""FSHA's networks of its own: the published pilot, and the critic of features.

Pasquini, Ateniese, Bernaschi, *Unleashing the Tiger*, CCS 2021, section 4 and its code.
"""

from torch import Tensor, nn
from torch.nn.functional import leaky_relu


class Pilot(nn.Module):
    """The server's own client: pictures ``[B, 3, H, W]`` to tokens ``[B, N, d]``.

    Linear, as published: its space is easy to read, and the critic leads the client there.

    Args:
        token_width: Width ``d`` of a token.
        patch_size: Side of a patch in pixels.
        width: Channels between its two layers.
    """

    def __init__(self, token_width: int, patch_size: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, patch_size, stride=patch_size),
            nn.Conv2d(width, token_width, 3, padding=1),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the tokens, row by row."""
        cells: Tensor = self.layers(2 * pictures - 1)
        return cells.flatten(2).transpose(1, 2)


class FeatureCritic(nn.Module):
    """Scores grids of tokens ``[B, N, d]`` for coming from the client, ``[B]``.

    Convolutions and residual blocks over the grid, as published: it must see how the tokens of
    one picture go together, or the client is led to the pilot's tokens in the wrong places.

    Args:
        token_width: Width ``d`` of a token.
        grid: Rows and columns of patches.
        width: Channels.
        blocks: Residual blocks (6 as published).
    """

    def __init__(
        self, token_width: int, grid: tuple[int, int], width: int, blocks: int = 2
    ) -> None:
        super().__init__()
        self.grid = grid
        self.enter = nn.Conv2d(token_width, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LeakyReLU(0.2),
                nn.Conv2d(width, width, 3, padding=1),
                nn.LeakyReLU(0.2),
                nn.Conv2d(width, width, 3, padding=1),
            )
            for _ in range(blocks)
        )
        self.shrink = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.score = nn.Linear(width * ((grid[0] + 1) // 2) * ((grid[1] + 1) // 2), 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores."""
        cells = self.enter(tokens.transpose(1, 2).reshape(len(tokens), -1, *self.grid))
        for block in self.blocks:
            cells = cells + block(cells)
        scores: Tensor = self.score(leaky_relu(self.shrink(cells), 0.2).flatten(1))
        return scores.squeeze(-1)
