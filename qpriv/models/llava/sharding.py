"""A decoder's frozen weights, divided among processes (FSDP2: `torch.distributed.fsdp.fully_shard`).

Adapters stay whole on every process: they are a hundredth of a model. So gradients, clipping,
optimiser and checkpoints are those of processes that hold all of it, to the bit.
"""

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from .adapted import AdaptedLlava


def shard_frozen(model: AdaptedLlava, device: str) -> None:
    """Let each process keep its share of the decoder layers' frozen weights, in place.

    A layer is whole while it computes. So every process must run the same layers equally often:
    equally many batches, and answers of equal length (`VisionLanguageModel.answer` sees to that).

    Args:
        model: The model, with its adapters, the same on every process.
        device: Kind of device that it computes on, ``cpu`` or ``cuda``.
    """
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for layer in model.decoder_layers:
        trained = {weight for weight in layer.parameters() if weight.requires_grad}
        fully_shard(layer, mesh=mesh, reshard_after_forward=True, ignored_params=trained)
    # the decoder itself shares nothing out; it lets one layer be gathered while another computes
    whole = set(model.language_model.parameters()) - set(model.decoder_layers.parameters())
    adapters = {weight for weight in model.decoder_layers.parameters() if weight.requires_grad}
    fully_shard(model.language_model, mesh=mesh, ignored_params=whole | adapters)


def is_sharded(model: nn.Module) -> bool:
    """Return whether any part of a model is divided among processes."""
    return any(isinstance(part, FSDPModule) for part in model.modules())
