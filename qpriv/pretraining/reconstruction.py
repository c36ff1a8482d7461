"""The auxiliary loss that makes activations carry what the picture looks like."""

from torch import Tensor, nn

from .scene_tensors import PATCH

_FLOOR = 0.01


class PixelReadout(nn.Module):
    """Reads a patch's pixels off its activation, linearly; thrown away after pre-training.

    A large model sees millions of faces and its activations keep their detail; forty faces teach
    a small one no such thing. This loss puts it there, so that attacks and defences meet the
    leak they are made for. It is the squared error of the pixels over the patch's own variance
    (plus a floor that keeps flat patches from counting), so detail weighs as much as colour.

    Args:
        width: Width of the activations.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.read = nn.Linear(width, 3 * PATCH * PATCH)
        nn.init.constant_(self.read.bias, 0.7)  # about the mean of light scenes

    def forward(self, activations: Tensor, pixels: Tensor) -> Tensor:
        """Return the mean relative error.

        Args:
            activations: ``[..., width]``.
            pixels: The patches in [0, 1], ``[..., 192]``.
        """
        error = (self.read(activations) - pixels).square().mean(-1)
        variance = pixels.reshape(*pixels.shape[:-1], 3, -1).var(-1).mean(-1)
        loss: Tensor = (error / (variance + _FLOOR)).mean()
        return loss
