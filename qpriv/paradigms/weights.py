"""Trained weights by name, as federated clients and their server exchange them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from qpriv.models.llava.vision_language import VisionLanguageModel


def named_weights(model: VisionLanguageModel) -> dict[str, Tensor]:
    """Return copies of the trained weights, by their names in a PEFT folder."""
    return {_peft_name(n): v.detach().clone() for n, v in _named_parameters(model)}


@torch.no_grad()
def load_weights(model: VisionLanguageModel, weights: Mapping[str, Tensor]) -> None:
    """Overwrite the trained weights by those that `named_weights` returned."""
    for name, parameter in _named_parameters(model):
        parameter.copy_(weights[_peft_name(name)])


def trained(model: VisionLanguageModel) -> list[nn.Parameter]:
    """Return the trained weights, in the order of `named_weights`."""
    return [parameter for _, parameter in _named_parameters(model)]


@torch.no_grad()
def overwrite(parameters: Sequence[nn.Parameter], values: Sequence[Tensor]) -> None:
    """Copy values into parameters in place."""
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)


def _named_parameters(model: VisionLanguageModel) -> list[tuple[str, nn.Parameter]]:
    return [(name, value) for name, value in model.named_parameters() if value.requires_grad]


def _peft_name(name: str) -> str:
    return name.removeprefix("llava.").replace(".default.weight", ".weight")
