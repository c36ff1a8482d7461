"""The LoRA adapter as a value: drawn from a seed, copied out, put back."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from qpriv.errors import CheckpointError

AdapterState = dict[str, Tensor]


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the LoRA parameters of a model by name, trainable or not."""
    return {name: value for name, value in model.named_parameters() if ".lora_" in name}


def adapter_state(model: nn.Module) -> AdapterState:
    """Return a copy of the adapter, on the CPU."""
    return {
        name: value.detach().to("cpu", copy=True)
        for name, value in adapter_parameters(model).items()
    }


def load_adapter(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put a copied adapter into a model that has one of the same shape.

    Raises:
        CheckpointError: If the names or shapes are not exactly those of the model.
    """
    own = adapter_parameters(model)
    check_names(own, state, "adapter")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(state[name])


def reset_adapter(model: nn.Module, seed: int) -> None:
    """Draw a fresh adapter: A uniform as `nn.Linear` draws it, B zero (LoRA, section 4.1)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in adapter_parameters(model).items():
            if ".lora_A." in name:
                bound = 1 / math.sqrt(value.shape[1])
                drawn = torch.rand(value.shape, generator=generator) * 2 * bound - bound
                value.copy_(drawn)
            else:
                value.zero_()


@contextmanager
def borrowed_adapter(model: nn.Module) -> Iterator[None]:
    """Give the model back with the adapter values, flags, gradients and modes it came with."""
    parameters = adapter_parameters(model)
    state = adapter_state(model)
    flags = {name: (value.requires_grad, value.grad) for name, value in parameters.items()}
    modes = {module: module.training for module in model.modules()}
    try:
        for value in parameters.values():
            value.requires_grad_(True)
            value.grad = None
        yield
    finally:
        load_adapter(model, state)
        for name, value in parameters.items():
            value.requires_grad_(flags[name][0])
            value.grad = flags[name][1]
        for module, mode in modes.items():
            module.training = mode


def check_names(own: Mapping[str, Tensor], given: Mapping[str, Tensor], what: str) -> None:
    """Check that a state fits a model exactly; a partial load would train on half of it.

    Raises:
        CheckpointError: If a name is missing, unknown, or of another shape.
    """
    missing, unknown = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
    shapes = [name for name in own.keys() & given.keys() if own[name].shape != given[name].shape]
    for problem, names in (("misses", missing), ("has unknown", unknown), ("misshapes", shapes)):
        if names:
            raise CheckpointError(
                f"the {what} {problem} {len(names)} of {len(own)} weights, such as {names[0]}",
                remedy="it was made by another model or another rank: give the matching settings",
            )
