"""`Architecture`: the sizes of a backbone, counted on modules that were built without weights."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import timm
import torch
from torch import nn
from transformers import (
    AutoConfig,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
)

from qpriv.errors import ModelError
from qpriv.models.features import FeatureSizes
from qpriv.models.llava.encoders import as_model_error
from qpriv.models.llava.loading import patch_grid, read_config
from qpriv.models.registry import TEXT_ENCODER, Backbone
from qpriv.pruning.predictor import DynamicThresholdPredictor, PredictorConfig

_SENSITIVITY_SIDE = 16
"""Patches along a side of the sensitivity encoder's input, as `load_sensitivity_encoder` sets."""


@dataclass(frozen=True)
class Encoder:
    """A frozen transformer that runs where the data are.

    Args:
        parameters: Its parameters.
        flops: Floating-point operations of one pass, two a multiplication and addition.
    """

    parameters: int
    flops: float


@dataclass(frozen=True)
class Architecture:
    """Sizes of a backbone and of the predictor that prunes for it.

    Args:
        layers: Decoder layers ``L``.
        hidden: Width ``d`` of the decoder.
        intermediate: Width ``m`` of its MLPs.
        vocabulary: Rows of the LM head.
        patches: Visual tokens ``N`` before pruning.
        patch_width: Values of a patch before the projector.
        layer: Parameters of a decoder layer.
        layer_linear: Those of them in the seven adapted projections.
        layer_lora: LoRA parameters of a layer at rank 1: inputs and outputs of the projections.
        embeddings: Parameters of the token embeddings.
        head: Parameters of final norm and LM head.
        projector: Parameters of the projector.
        vision: The vision tower.
        text: CLIP's text encoder.
        sensitivity: The encoder of the sensitivity branch.
        predictor: Parameters of the predictor by part.
        predictor_flops: Operations of one of its passes.
    """

    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    patches: int
    patch_width: int
    layer: int
    layer_linear: int
    layer_lora: int
    embeddings: int
    head: int
    projector: int
    vision: Encoder
    text: Encoder
    sensitivity: Encoder
    predictor: dict[str, int]
    predictor_flops: float

    @property
    def frozen(self) -> int:
        """Return the parameters of the LLaVA itself."""
        decoder = self.embeddings + self.layers * self.layer + self.head
        return self.vision.parameters + self.projector + decoder

    def lora(self, rank: int, layers: int | None = None) -> int:
        """Return the trained parameters of adapters on some layers, on all where None."""
        return rank * self.layer_lora * (self.layers if layers is None else layers)


@cache
def read_architecture(backbone: Backbone) -> Architecture:
    """Return the sizes of a backbone from the configurations of its three checkpoints.

    Those of LLaVA-1.5 (7B and 13B) and of its encoders are known and need neither files nor a
    network; others are read by folder or hub id.

    Raises:
        ModelError: If a configuration cannot be had, or is another model's.
    """
    config = known_llava(backbone.llava) or read_config(backbone.llava)
    rows, columns = patch_grid(config)
    decoder = config.text_config
    with torch.device("meta"):
        llava = LlavaForConditionalGeneration(config)
    inner = llava.model
    layer = inner.language_model.layers[0]
    linear = [module for module in layer.modules() if isinstance(module, nn.Linear)]
    text_config = _text_config(backbone.text_encoder)
    sensitivity, side, width = _sensitivity(backbone.sensitivity_encoder)
    vision_width = config.vision_config.hidden_size
    predictor, flops = _predictor(
        FeatureSizes(vision_width, vision_width, text_config.hidden_size, width),
        rows * columns,
        side * side,
    )
    return Architecture(
        layers=decoder.num_hidden_layers,
        hidden=decoder.hidden_size,
        intermediate=decoder.intermediate_size,
        vocabulary=decoder.vocab_size,
        patches=rows * columns,
        patch_width=vision_width,
        layer=count(layer),
        layer_linear=sum(module.weight.numel() for module in linear),
        layer_lora=sum(module.in_features + module.out_features for module in linear),
        embeddings=count(inner.language_model.embed_tokens),
        head=count(inner.language_model.norm) + count(llava.lm_head),
        projector=count(inner.multi_modal_projector),
        vision=_vision(config.vision_config, count(inner.vision_tower)),
        text=_text(text_config),
        sensitivity=sensitivity,
        predictor=predictor,
        predictor_flops=flops,
    )


def count(module: nn.Module) -> int:
    """Return the number of a module's parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def transformer_flops(tokens: int, width: int, intermediate: int, layers: int) -> float:
    """Return the operations of an encoder: ``L (2 s (4 d^2 + 2 d m) + 4 s^2 d)``."""
    linear = 4 * width**2 + 2 * width * intermediate
    return float(layers * (2 * tokens * linear + 4 * tokens**2 * width))


def known_llava(name: str) -> LlavaConfig | None:
    """Return the configuration of a released LLaVA-1.5 by its hub id, None for another name."""
    sizes = {"7b": (4096, 11008, 32), "13b": (5120, 13824, 40)}
    found = next((key for key in sizes if name == f"llava-hf/llava-1.5-{key}-hf"), None)
    if found is None:
        return None
    hidden, intermediate, layers = sizes[found]
    vision = CLIPVisionConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        image_size=336,
        patch_size=14,
        projection_dim=768,
    )
    decoder = LlamaConfig(
        vocab_size=32064,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 128,
    )
    return LlavaConfig(vision_config=vision, text_config=decoder, image_token_index=32000)


def _vision(config: CLIPVisionConfig, parameters: int) -> Encoder:
    patches = (config.image_size // config.patch_size) ** 2
    embedding = 2.0 * patches * 3 * config.patch_size**2 * config.hidden_size
    layers = (config.hidden_size, config.intermediate_size, config.num_hidden_layers)
    return Encoder(parameters, embedding + transformer_flops(patches + 1, *layers))


def _text_config(name: str) -> CLIPTextConfig:
    if name == TEXT_ENCODER:
        return CLIPTextConfig(
            hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12
        )
    with as_model_error(Path(name), "CLIP text encoder"):
        config = AutoConfig.from_pretrained(name)
    return getattr(config, "text_config", config)


def _text(config: CLIPTextConfig) -> Encoder:
    with torch.device("meta"):
        parameters = count(CLIPTextModel(config))
    layers = (config.hidden_size, config.intermediate_size, config.num_hidden_layers)
    return Encoder(parameters, transformer_flops(config.max_position_embeddings, *layers))


def _sensitivity(name: str) -> tuple[Encoder, int, int]:
    """Return the encoder of the sensitivity branch, its patches along a side, and its width."""
    source = f"local-dir:{name}" if Path(name).is_dir() else name.removeprefix("timm/")
    try:
        vit = timm.create_model(source, pretrained=False, num_classes=0)
    except Exception as error:  # timm reports a bad name by whatever exception it meets first
        raise ModelError(
            f"not a timm vision transformer: {error}",
            where=name,
            remedy="give a folder or hub id such as timm/vit_small_patch14_dinov2.lvd142m",
        ) from error
    side = min(_SENSITIVITY_SIDE, *vit.patch_embed.grid_size)
    patch, width = vit.patch_embed.patch_size[0], vit.num_features
    hidden = vit.blocks[0].mlp.fc1.out_features
    embedding = 2.0 * side**2 * 3 * patch**2 * width
    tokens = side**2 + vit.num_prefix_tokens
    flops = embedding + transformer_flops(tokens, width, hidden, len(vit.blocks))
    positions = (vit.patch_embed.num_patches - side**2) * width  # dropped with the larger grid
    return Encoder(count(vit) - positions, flops), side, width


def _predictor(
    sizes: FeatureSizes, patches: int, sensitivity_patches: int
) -> tuple[dict[str, int], float]:
    """Return the parameters of the predictor by part, and the operations of one pass."""
    with torch.device("meta"):
        predictor = DynamicThresholdPredictor(PredictorConfig.scaled(sizes))
    parts = {name: count(part) for name, part in predictor.named_children()}
    parts["gamma"] = predictor.gamma.numel()
    scorer = predictor.utility_scorer
    agreement = patches * predictor.config.projection_dim
    return parts, 2.0 * (
        _weights(scorer.query)
        + patches * _weights(scorer.key)
        + agreement
        + sensitivity_patches * _weights(predictor.sensitivity_head)
        + _weights(predictor.ratio_predictor)
    )


def _weights(module: nn.Module) -> int:
    linear = (part for part in module.modules() if isinstance(part, nn.Linear))
    return sum(part.weight.numel() for part in linear)
