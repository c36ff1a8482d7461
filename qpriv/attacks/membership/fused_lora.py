"""LoRA layers as one matrix product, for the many shadow models that an attacker trains.

PEFT computes ``x W^T + s (x A^T) B^T``: three products and two passes over the outputs, all of
which autograd stores. This module computes ``W + s B A`` at every call and then needs only one
product. The sum is cheap, because a layer has far fewer weights than a batch has tokens times
width. The backward pass never forms the gradient of ``W``. Results equal PEFT's up to rounding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import torch
from peft.tuners.lora.layer import Linear
from torch import Tensor, nn

from qpriv.models.precision import autocast_dtype, widened


@contextmanager
def fused_lora(model: nn.Module) -> Iterator[None]:
    """Compute each LoRA layer of a model as one product, with the active adapter.

    A layer falls back to PEFT if no adapter or several adapters are active, with dropout or a
    bias, if weights and adapter differ in dtype, in half precision, and under autocast.
    """
    layers = [module for module in model.modules() if type(module) is Linear]
    for layer in layers:
        # shadows the method of this one instance
        object.__setattr__(layer, "forward", partial(_forward, layer))
    try:
        yield
    finally:
        for layer in layers:
            object.__delattr__(layer, "forward")


class _Context(Protocol):
    """The autograd context between forward and backward."""

    scale: float
    saved_tensors: tuple[Tensor, Tensor, Tensor, Tensor]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors for the backward pass."""
        ...


class _FusedLinear(torch.autograd.Function):
    """``x (W + s B A)^T`` with gradients of ``x`` ``[..., i]``, ``A`` ``[r, i]``, ``B`` ``[o, r]``."""

    @staticmethod
    def forward(
        ctx: _Context, x: Tensor, weight: Tensor, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        ctx.save_for_backward(x, weight, a, b)
        ctx.scale = scale
        return x @ torch.addmm(weight, b, a, alpha=scale).T

    @staticmethod
    def backward(ctx: _Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, a, b = ctx.saved_tensors
        (gradient,) = gradients
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = gradient @ torch.addmm(weight, b, a, alpha=ctx.scale)
        x, gradient = x.flatten(0, -2), gradient.flatten(0, -2)
        of_a = ctx.scale * ((gradient @ b).T @ x)
        of_b = ctx.scale * (gradient.T @ (x @ a.T))
        return of_x, None, of_a, of_b, None


def _forward(layer: Linear, x: Tensor) -> Tensor:
    name = _only_adapter(layer)
    weight: Tensor = layer.get_base_layer().weight
    # in a narrow dtype, the sum of weights would round away most of the update
    wide = weight.dtype == widened(weight).dtype and autocast_dtype(x.device) is None
    same = name is not None and x.dtype == weight.dtype == layer.lora_A[name].weight.dtype
    if name is None or not (wide and same):
        plain: Tensor = Linear.forward(layer, x)
        return plain
    a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
    fused: Tensor = _FusedLinear.apply(x, weight, a, b, layer.scaling[name])
    return fused


def _only_adapter(layer: Linear) -> str | None:
    """Return the active adapter, or None if one product is not enough."""
    names = [name for name in layer.active_adapters if name in layer.lora_A]
    if len(names) != 1 or layer.disable_adapters or layer.merged or layer.lora_variant:
        return None
    (name,) = names
    dropped = layer.training and not isinstance(layer.lora_dropout[name], nn.Identity)
    biased = layer.get_base_layer().bias is not None or layer.lora_bias[name]
    return None if dropped or biased else str(name)
