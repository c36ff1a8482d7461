"""Loading LLaVA from a folder: checked, quantised if asked, never running foreign code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BitsAndBytesConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerBase,
)

from qpriv.errors import ModelError

from .encoders import as_model_error, quiet_loading, require_complete
from .lora import PROJECTIONS

DType = Literal["float32", "bfloat16", "float16"]
Quantization = Literal["none", "nf4", "int8"]

DTYPES: Mapping[DType, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

# names are matched from the start: plain "vision_tower" matches nothing and quantises CLIP;
# giving any list drops the default, which is the head
_NOT_QUANTISED = ["model.vision_tower", "model.multi_modal_projector", "lm_head"]


def load_llava(
    folder: Path, *, dtype: DType, quantization: Quantization, device: str
) -> LlavaForConditionalGeneration:
    """Load the stock model.

    Args:
        folder: Holds ``config.json`` and safetensors.
        dtype: Type of the weights that are not quantised.
        quantization: ``nf4`` or ``int8`` quantise the decoder's projections with bitsandbytes.
        device: Where quantised weights are made; they are best not moved afterwards.

    Raises:
        ModelError: If the folder does not hold a complete LLaVA with a CLIP vision tower.
    """
    config = read_config(str(folder))
    with quiet_loading(), as_model_error(folder, "LLaVA"):
        model, info = LlavaForConditionalGeneration.from_pretrained(
            folder,
            config=config,
            dtype=DTYPES[dtype],
            use_safetensors=True,
            output_loading_info=True,
            quantization_config=_quantization_config(quantization, DTYPES[dtype]),
            device_map=None if quantization == "none" else {"": device},
        )
    require_complete(info["missing_keys"], folder)
    if quantization != "none":
        _check_quantised(model, config.text_config.num_hidden_layers)
    return model


def load_processor(folder: Path) -> LlavaProcessor:
    """Load the processor of a LLaVA folder.

    Raises:
        ModelError: If the folder holds none.
    """
    with quiet_loading(), as_model_error(folder, "LLaVA processor"):
        return LlavaProcessor.from_pretrained(folder)


def load_question_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a CLIP folder.

    Raises:
        ModelError: If the folder holds none.
    """
    with quiet_loading(), as_model_error(folder, "CLIP tokenizer"):
        return AutoTokenizer.from_pretrained(folder)


def patch_grid(config: LlavaConfig) -> tuple[int, int]:
    """Return rows and columns of the patches that enter the projector.

    Raises:
        ModelError: If the features hold more than patches.
    """
    if config.vision_feature_select_strategy != "default":
        raise ModelError(
            f"vision_feature_select_strategy is {config.vision_feature_select_strategy!r}",
            where="config.json",
            remedy="use 'default': a class token is no patch and cannot be pruned as one",
        )
    side = config.vision_config.image_size // config.vision_config.patch_size
    return side, side


def read_config(name: str) -> LlavaConfig:
    """Return the configuration of a LLaVA, by hub id or folder; no weights are read.

    Raises:
        ModelError: If there is none, or it is another model's.
    """
    with as_model_error(Path(name), "model config"):
        config = AutoConfig.from_pretrained(name)
    if not isinstance(config, LlavaConfig):
        raise ModelError(
            f"a {config.model_type} model, not a LLaVA",
            where=name,
            remedy="give a LlavaForConditionalGeneration such as llava-hf/llava-1.5-7b-hf",
        )
    if config.vision_config.model_type != "clip_vision_model":
        raise ModelError(
            f"vision tower is a {config.vision_config.model_type}, not a CLIP", where=name
        )
    return config


def _quantization_config(
    quantization: Quantization, dtype: torch.dtype
) -> BitsAndBytesConfig | None:
    if quantization == "none":
        return None
    if quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=_NOT_QUANTISED)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
        llm_int8_skip_modules=_NOT_QUANTISED,
    )


def _check_quantised(model: nn.Module, num_layers: int) -> None:
    import bitsandbytes

    kinds = (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)
    names = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    strangers = [name for name in names if "language_model.layers" not in name]
    if len(names) != PROJECTIONS * num_layers or strangers:
        raise ModelError(
            f"{len(names)} layers were quantised, not the {PROJECTIONS * num_layers} "
            f"projections of the decoder; strangers: {strangers[:3]}"
        )
