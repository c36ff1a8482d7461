"""A module whose decoder is divided among processes: what does not go with it, and how it is done."""

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
    """Refuse, before weights load, what cannot be done with a decoder divided among processes.

    Raises:
        ConfigError: If it is asked for.
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
    """Divide the decoder of a module among the processes of its trainer.

    Args:
        module: The module; data parallelism will leave alone what is divided.
        model: Its model, with its adapters.
    """
    shard_frozen(model, module.trainer.strategy.root_device.type)
    divided = [name for name, value in module.named_parameters() if isinstance(value, DTensor)]
    # else the first process would send them to the others (`DistributedDataParallel`)
    setattr(module, "_ddp_params_and_buffers_to_ignore", divided)
