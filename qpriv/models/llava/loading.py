"""Loading LLaVA from a folder: checked, quantised if asked, never running foreign code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerBase,
)

from qpriv.errors import ModelError

from .encoders import as_model_error, quiet_loading, require_complete
from .quantization import Quantization, quantization_config, settle

DType = Literal["float32", "bfloat16", "float16"]

DTYPES: Mapping[DType, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


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
            quantization_config=quantization_config(quantization, dtype),
            device_map=None if quantization == "none" else {"": device},
        )
    require_complete(info["missing_keys"], folder)
    if quantization != "none":
        settle(model, config.text_config.num_hidden_layers)
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
