"""Sharding of a module's frozen decoder over processes, and the settings that forbid it."""

import lightning as L
from torch.distributed.tensor import DTensor

from qpriv.errors import ConfigError
from qpriv.models.llava.quantization import Quantization
from qpriv.models.llava.sharding import shard_frozen
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms import Centralized, Paradigm
from qpriv.pruning.in_decoder import InDecoderPruning
from qpriv.pruning.policy import PruningPolicy


def check_shards(paradigm: Paradigm, policy: PruningPolicy, quantization: Quantization) -> None:
    """Check, before weights load, that the settings allow a sharded decoder.

    Raises:
        ConfigError: If the paradigm, the policy or the quantisation does not allow it.
    """
    if not isinstance(paradigm, Centralized):
        name = type(paradigm).__name__
        _refuse(f"clients of {name} run its layers at different times", "choose Centralized")
    if isinstance(policy, InDecoderPruning):
        _refuse(f"{policy.label} decides beside the layers", "choose a policy that decides before")
    if quantization != "none":
        _refuse(f"weights in {quantization} cannot be divided", "choose quantization none")


def _refuse(why: str, remedy: str) -> None:
    what = f"the decoder cannot be divided among processes: {why}"
    raise ConfigError(what, where="--model.shard", remedy=f"{remedy}, or shard false")


def divide(module: L.LightningModule, model: VisionLanguageModel) -> None:
    """Shard the frozen decoder of a module over the processes of its trainer.

    Args:
        module: The module; `DistributedDataParallel` will ignore its sharded weights.
        model: The module's model, with its adapters.
    """
    shard_frozen(model, module.trainer.strategy.root_device.type)
    divided = [name for name, value in module.named_parameters() if isinstance(value, DTensor)]
    # else `DistributedDataParallel` would broadcast them from the first process
    setattr(module, "_ddp_params_and_buffers_to_ignore", divided)
