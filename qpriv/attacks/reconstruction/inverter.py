"""`Inverter`: from the image tokens that crossed a cut back to the picture.

The convolutional decoders of FSHA and FORA need a full grid of features, but pruning leaves a
ragged set. This decoder places the tokens on the grid, fills the holes with a learned mask token
(like a masked autoencoder, He et al. 2022, section 3), and uses attention to transfer information
from kept tokens to dropped patches. It starts from the closed-form linear read-out of each patch
(ridge regression), which plain convolutional decoders reach slowly, and learns a residual.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..token_grid import TokenGrid


class Inverter(nn.Module):
    """Decoder from tokens to a picture.

    Args:
        token_width: Width ``d`` of a token.
        grid: Rows and columns of patches.
        patch_size: Side of a reconstructed patch in pixels.
        width: Width of the residual network.
        depth: Number of its transformer layers.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        token_width: int,
        grid: tuple[int, int],
        patch_size: int,
        *,
        width: int = 192,
        depth: int = 3,
    ) -> None:
        super().__init__()
        self.grid, self.patch_size = grid, patch_size
        cells = grid[0] * grid[1]
        self.register_buffer("mean", torch.zeros(token_width))
        self.register_buffer("scale", torch.ones(token_width))
        self.linear = nn.Linear(token_width, 3 * patch_size**2)
        self.embed = nn.Linear(token_width, width)
        self.mask_token = nn.Parameter(torch.zeros(width))
        self.place = nn.Parameter(torch.randn(cells, width) * 0.02)
        self.trunk = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(
                width,
                6 if width % 6 == 0 else 4,
                2 * width,
                0.0,
                "gelu",
                batch_first=True,
                norm_first=True,
            ),
            depth,
            norm=nn.LayerNorm(width),
            enable_nested_tensor=False,
        )
        self.head = nn.Linear(width, 3 * patch_size**2)
        # on blocks of 2 x 2 pixels: convolutions over three channels take most of a step's time
        block = 1 if (grid[0] * patch_size) % 2 or (grid[1] * patch_size) % 2 else 2
        last_convolution = nn.Conv2d(48, 3 * block**2, 3, padding=1)
        self.smooth = nn.Sequential(
            nn.PixelUnshuffle(block),
            nn.Conv2d(3 * block**2, 48, 3, padding=1),
            nn.GELU(),
            last_convolution,
            nn.PixelShuffle(block),
        )
        with torch.no_grad():  # start as the linear read-out
            for last in (self.head, last_convolution):
                for parameter in last.parameters():
                    parameter.zero_()

    def forward(self, grid: TokenGrid) -> Tensor:
        """Return pictures ``[n, 3, H, W]``, about in [0, 1]."""
        read = self.linear(self._normalised(grid.tokens))
        read = torch.where(grid.present.unsqueeze(-1), read, self.linear.bias)
        picture = self._assemble(read + self._residual(grid))
        smoothed: Tensor = self.smooth(picture)
        return picture + smoothed

    def _normalised(self, tokens: Tensor) -> Tensor:
        return ((tokens - self.mean) / self.scale).clamp(-10, 10)

    def _residual(self, grid: TokenGrid) -> Tensor:
        """Return what attention over the grid adds to each patch, ``[n, N, 3 * p * p]``."""
        embedded = self.embed(self._normalised(grid.tokens))
        embedded = torch.where(grid.present.unsqueeze(-1), embedded, self.mask_token)
        added: Tensor = self.head(self.trunk(embedded + self.place))
        return added

    def _assemble(self, patches: Tensor) -> Tensor:
        rows, columns = self.grid
        size = self.patch_size
        cells = patches.reshape(-1, rows, columns, 3, size, size)
        return cells.permute(0, 3, 1, 4, 2, 5).reshape(-1, 3, rows * size, columns * size)

    @torch.no_grad()
    def normalise(self, grid: TokenGrid) -> None:
        """Take mean and spread of every number of a token from auxiliary tokens."""
        tokens = grid.tokens[grid.present]
        self.mean.copy_(tokens.mean(dim=0))
        self.scale.copy_(tokens.std(dim=0).clamp(min=1e-6))

    @torch.no_grad()
    def fit_linear(self, grid: TokenGrid, pictures: Tensor, penalty: float = 1e-3) -> None:
        """Set the linear read-out in closed form, to what the residual network leaves over.

        Args:
            grid: Tokens of auxiliary pictures.
            pictures: The pictures, ``[n, 3, H, W]`` in [0, 1].
            penalty: Ridge penalty, as a share of the mean squared norm of a token.
        """
        starts = range(0, len(grid), 128)
        residual = torch.cat([self._residual(grid[slice(s, s + 128)]) for s in starts])
        left = to_patches(pictures, self.patch_size) - residual
        inputs = self._normalised(grid.tokens)[grid.present]
        weight, bias = ridge(inputs, left[grid.present], penalty)
        self.linear.weight.copy_(weight)
        self.linear.bias.copy_(bias)


def weighted_error(restored: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """Return the mean squared error of pictures ``[B, 3, H, W]`` under weights ``[B, H, W]``."""
    error = (restored - truth).square().mean(dim=1)
    return (error * weights).sum() / weights.sum()


def ridge(inputs: Tensor, targets: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """Return weight ``[t, d]`` and bias ``[t]`` of the ridge regression of targets on inputs.

    Args:
        inputs: ``[m, d]``.
        targets: ``[m, t]``.
        penalty: Penalty as a share of the mean of the covariance's diagonal.
    """
    centre, level = inputs.mean(dim=0), targets.mean(dim=0)
    x, y = (inputs - centre).double(), (targets - level).double()
    covariance = x.T @ x
    covariance += penalty * covariance.diagonal().mean() * torch.eye(len(covariance))
    weight = torch.linalg.solve(covariance, x.T @ y).T.to(inputs.dtype)
    return weight, level - weight @ centre


def to_patches(pictures: Tensor, size: int) -> Tensor:
    """Return pictures ``[n, 3, H, W]`` as patches ``[n, N, 3 * size * size]``, row by row."""
    return functional.unfold(pictures, size, stride=size).transpose(1, 2)
