"""`GaussianNoise`: normal numbers are added to what crosses, in training and in use."""

from torch import Tensor

from qpriv.errors import ConfigError
from qpriv.split.defence import Defence
from qpriv.split.stages import Site, StageContext, Stages
from qpriv.split.transcript import Direction


class GaussianNoise(Defence):
    """Adds fresh normal noise to every number of the activations that clients send.

    All tokens are noised, those of the text too: at a cut inside the decoder they have read the
    image. Activations that a server sends down carry none. It is no differential privacy: nothing
    is accounted, and only ``clip_norm`` bounds what the noise must cover. The same image is sent
    in every epoch with other noise, and whoever keeps all of it can average.

    Args:
        std: Standard deviation of the noise, in the units of the activations; 0 adds and clips
            nothing.
        clip_norm: Tokens whose norm is larger are first scaled down to it; null scales none.
        gradient_std: Standard deviation of the noise that whoever sends a gradient adds to it;
            gradients are orders of magnitude smaller than activations. 0 adds none.

    Raises:
        ConfigError: If a number is out of its range.
    """

    def __init__(
        self, std: float = 0.1, clip_norm: float | None = None, gradient_std: float = 0.0
    ) -> None:
        super().__init__()
        for name, value in (("std", std), ("gradient_std", gradient_std)):
            if not 0 <= value < float("inf"):
                raise ConfigError(f"{name} is {value}", remedy="choose 0 or more")
        if clip_norm is not None and not 0 < clip_norm < float("inf"):
            raise ConfigError(f"clip_norm is {clip_norm}", remedy="choose more than 0, or null")
        self.std, self.clip_norm, self.gradient_std = std, clip_norm, gradient_std

    @property
    def label(self) -> str:
        """Return such as ``noise(0.1,clip=5)``."""
        clip = "" if self.clip_norm is None else f",clip={self.clip_norm:g}"
        gradient = f",gradient={self.gradient_std:g}" if self.gradient_std else ""
        return f"noise({self.std:g}{clip}{gradient})"

    def stages(self, site: Site) -> Stages:
        """Return the noise of activations that go up, and of gradients either way."""
        activations = self.std > 0 and site.direction is Direction.UP
        return Stages(
            encode=self._noised if activations else None,
            encode_gradient=self._noised_gradient if self.gradient_std else None,
        )

    def _noised(self, rows: Tensor, context: StageContext) -> Tensor:
        if self.clip_norm is not None:
            norms = rows.float().norm(dim=-1, keepdim=True)
            rows = rows * (self.clip_norm / norms.clamp(min=self.clip_norm)).to(rows.dtype)
        return rows + self.std * context.normal(rows)

    def _noised_gradient(self, gradient: Tensor, context: StageContext) -> Tensor:
        return gradient + self.gradient_std * context.normal(gradient)
