"""LeNet on digits, as the gradient attacks were published, small enough for a test."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

from qpriv.attacks.gradients.label_recovery import HeadGradient

ACTIVATIONS = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}
CLASSES, FEATURES = 10, 588


class LeNet(nn.Module):
    """The network of DLG and iDLG: three convolutions of stride 2, 2 and 1, and one linear layer.

    Args:
        activation: A key of `ACTIVATIONS`; the published network has ``sigmoid``.
        normalise: Put a LayerNorm before the head, as language models do.
    """

    def __init__(self, activation: str = "sigmoid", *, normalise: bool = False) -> None:
        super().__init__()
        active = ACTIVATIONS[activation]
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 12, 5, 2, 2), active()),
            *(nn.Conv2d(12, 12, 5, 2, 2), active()),
            *(nn.Conv2d(12, 12, 5, 1, 2), active(), nn.Flatten()),
            nn.LayerNorm(FEATURES) if normalise else nn.Identity(),
        )
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(images))
        return scores

    def published_weights(self) -> "LeNet":
        """Draw all weights from U(-0.5, 0.5), as DLG and iDLG do."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)
        return self

    def head_gradient(self, images: Tensor, labels: Tensor) -> HeadGradient:
        loss = cross_entropy(self(images), labels)
        return HeadGradient(*torch.autograd.grad(loss, list(self.head.parameters())))


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Return scikit-learn's digits as ``[1797, 1, 28, 28]`` in [0, 1], and what they are."""
    loaded = load_digits()
    images = torch.tensor(loaded.images / 16, dtype=torch.float32)[:, None]
    return interpolate(images, (28, 28), mode="bilinear"), torch.tensor(loaded.target)
