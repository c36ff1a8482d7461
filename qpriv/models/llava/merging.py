"""Merging: a stock model that holds what adapters learned, and how far it is from the trained one."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from qpriv.errors import ConfigError

from ..registry import locate
from .encoders import quiet_loading
from .loading import DType, load_llava, load_processor
from .quantization import Quantization

_PROMPTS, _TOKENS = 4, 32


@dataclass(frozen=True)
class Merged:
    """What merging changed, on random prompts.

    Args:
        difference: Largest difference of a logit between the adapted and the merged model.
        largest: Largest absolute logit, to judge it by.
    """

    difference: float
    largest: float


def merge_adapters(
    base: str,
    adapters: Mapping[str, Path],
    out: Path,
    dtype: DType = "float32",
    quantization: Quantization = "none",
) -> Merged:
    """Write a LLaVA folder with its processor in which adapters are part of the weights.

    They are added to whole weights, also where they were trained on quantised ones: those would
    have to be rounded again. The difference that is returned is that from the model as trained.

    Args:
        base: Name or folder of the base model.
        adapters: PEFT folders of the adapters that compute together, by name.
        out: Where to; new or empty.
        dtype: Type of the base's weights in training, and of the merged ones.
        quantization: Format of the base's quantised weights in training.

    Raises:
        ConfigError: If there is something in the folder already.
        ModelError: If the base cannot be had.
    """
    if out.exists() and any(out.iterdir()):
        raise ConfigError("there is something already", where=str(out), remedy="choose another")
    folder = locate(base)
    model = _adapted(folder, adapters, dtype, quantization)
    before = _logits(model)
    if quantization != "none":
        model = _adapted(folder, adapters, dtype, "none")
    merged = model.merge_and_unload(adapter_names=list(adapters))
    after = _logits(merged)
    with quiet_loading():
        merged.save_pretrained(out)
        load_processor(folder).save_pretrained(out)
    return Merged(float((after - before).abs().max()), float(before.abs().max()))


def _adapted(
    folder: Path, adapters: Mapping[str, Path], dtype: DType, quantization: Quantization
) -> PeftModel:
    llava = load_llava(folder, dtype=dtype, quantization=quantization, device="cpu")
    first, *others = adapters.items()
    with warnings.catch_warnings():
        # PEFT asks transformers for the old name of an attribute that is still there
        warnings.filterwarnings("ignore", ".*`is_gradient_checkpointing`", FutureWarning)
        model = PeftModel.from_pretrained(llava, first[1], adapter_name=first[0])
        for name, place in others:
            model.load_adapter(place, adapter_name=name)
    model.base_model.set_adapter(list(adapters))
    return model.eval()


@torch.no_grad()
def _logits(model: PreTrainedModel | PeftModel) -> Tensor:
    """Return what a model makes of random prompts without an image, ``[B, S, V]``."""
    generator = torch.Generator().manual_seed(0)
    embeddings: nn.Embedding = model.get_input_embeddings()
    tokens = torch.randint(embeddings.num_embeddings, (_PROMPTS, _TOKENS), generator=generator)
    image = model.config.image_token_id
    tokens[tokens == image] = 0
    logits: Tensor = model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
    return logits.float()
