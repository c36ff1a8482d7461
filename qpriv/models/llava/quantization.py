"""Quantised base weights: the decoder's projections in bitsandbytes' nf4 or int8, all else whole.

Adapters are trained on top as usual (QLoRA, Dettmers et al. 2023, arXiv:2305.14314). It goes
through transformers' own configuration, on CPUs as on GPUs; a trainer's precision plugin would
quantise every linear layer there is, those of the predictor and of the adapters as well.
"""

from typing import Literal

from torch import nn
from transformers import BitsAndBytesConfig

from qpriv.errors import ModelError

from .lora import PROJECTIONS

Quantization = Literal["none", "nf4", "int8"]

# names are matched from the start: plain "vision_tower" matches nothing and quantises CLIP;
# giving any list drops the default, which is the head
_NOT_QUANTISED = ["model.vision_tower", "model.multi_modal_projector", "lm_head"]


def quantization_settings(quantization: Quantization, dtype: str) -> dict[str, object]:
    """Return the arguments of transformers' ``BitsAndBytesConfig``, none where nothing is quantised.

    Args:
        quantization: The format; ``nf4`` has its scales quantised as well.
        dtype: Type that nf4 weights are multiplied in, by name.

    >>> quantization_settings("int8", "float32")["load_in_8bit"]
    True
    """
    if quantization == "none":
        return {}
    if quantization == "int8":
        return {"load_in_8bit": True, "llm_int8_skip_modules": _NOT_QUANTISED}
    return {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": dtype,
        "llm_int8_skip_modules": _NOT_QUANTISED,
    }


def quantization_config(quantization: Quantization, dtype: str) -> BitsAndBytesConfig | None:
    """Return transformers' configuration of a format, None where nothing is quantised."""
    settings = quantization_settings(quantization, dtype)
    return BitsAndBytesConfig(**settings) if settings else None


def quantised_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers whose weights are quantised, adapted or not, by name."""
    import bitsandbytes

    kinds = (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)
    return {name: module for name, module in model.named_modules() if isinstance(module, kinds)}


def settle(model: nn.Module, num_layers: int) -> None:
    """Check what was quantised, and keep the weights as they are whatever the model does.

    Projections of every decoder layer are, and nothing else. On CPUs with AVX-512, bitsandbytes
    would pack nf4 weights anew, with coarser scales, at the first pass in evaluation mode:
    measuring a model would change how it goes on training.

    Raises:
        ModelError: If anything else was quantised, such as a layer of the vision tower.
    """
    layers = quantised_layers(model)
    strangers = [name for name in layers if "language_model.layers" not in name]
    if len(layers) != PROJECTIONS * num_layers or strangers:
        raise ModelError(
            f"{len(layers)} layers were quantised, not the {PROJECTIONS * num_layers} "
            f"projections of the decoder; strangers: {strangers[:3]}"
        )
    for layer in layers.values():
        setattr(layer, "support_avx512bf16_for_cpu", False)
