"""Loading document models: by hub id, by folder, or the embedded ones by name."""

from importlib.resources import files
from pathlib import Path

from transformers import (
    AutoConfig,
    AutoProcessor,
    DonutProcessor,
    PaliGemmaForConditionalGeneration,
    Pix2StructForConditionalGeneration,
    VisionEncoderDecoderModel,
)

from qpriv.errors import ConfigError, ModelError
from qpriv.models.llava.encoders import as_model_error, quiet_loading, require_complete

from . import page_encoder  # registers the embedded reader's encoder with the library
from .base import DocumentModel, Stock
from .donut import Donut
from .paligemma import PaliGemma
from .pix2struct import Pix2Struct
from .tiny_reader import SPECIAL_TOKENS
from .wiring import tiny_paligemma, tiny_pix2struct

READER = Path(str(files("qpriv.models"))) / "tiny" / "reader"
"""The embedded reader's folder."""

_WIRING = {"tiny-pix2struct": tiny_pix2struct, "tiny-paligemma": tiny_paligemma}
_ANSWER_TOKENS = 128  # the limit of every family's official fine-tuning on DocVQA


def load_document_model(
    name: str = "tiny",
    resolution: float = 1.0,
    image_size: tuple[int, int] | None = None,
    max_patches: int | None = None,
) -> DocumentModel:
    """Return a document model.

    Args:
        name: ``tiny`` (the embedded Donut-class reader), ``tiny-pix2struct`` or
            ``tiny-paligemma`` (random weights, for wiring only), a hub id, or a folder.
        resolution: Share of the height and width of a page whose detail reaches the model.
        image_size: Height and width of Donut's input; the checkpoint's where None.
        max_patches: Patches of Pix2Struct's input; the checkpoint's where None.

    Raises:
        ConfigError: If a setting does not belong to the family.
        ModelError: If there is no such model, or it is of another kind.
    """
    if not 0 < resolution <= 1:
        raise ConfigError(f"resolution is {resolution}", remedy="choose above 0, up to 1")
    if name in _WIRING:
        model: DocumentModel = _WIRING[name]()
    else:
        model = _load(str(READER) if name == "tiny" else name, image_size)
    if image_size and model.family != "donut":
        raise ConfigError(
            f"image_size is {image_size} for {model.family}",
            remedy="choose a checkpoint of another size, or max_patches for Pix2Struct",
        )
    if max_patches is not None:
        if model.family != "pix2struct":
            raise ConfigError(f"max_patches is {max_patches} for {model.family}")
        model.processor.image_processor.max_patches = max_patches
    model.resolution = resolution
    return model


def _load(name: str, image_size: tuple[int, int] | None) -> DocumentModel:
    with as_model_error(Path(name), "document model"):
        config = AutoConfig.from_pretrained(name)
    loaders = {
        "vision-encoder-decoder": _load_donut,
        "pix2struct": _load_pix2struct,
        "paligemma": _load_paligemma,
    }
    if config.model_type not in loaders:
        raise ModelError(
            f"a {config.model_type} model",
            where=name,
            remedy="give a Donut, a Pix2Struct or a PaliGemma",
        )
    if image_size and config.model_type == "vision-encoder-decoder":
        config.encoder.image_size = list(image_size)
    return loaders[config.model_type](name, config)


def _weights(kind: Stock, name: str, config: Stock) -> Stock:
    with quiet_loading(), as_model_error(Path(name), kind.__name__):
        network, info = kind.from_pretrained(
            name, config=config, use_safetensors=True, output_loading_info=True
        )
    require_complete(info["missing_keys"], Path(name))
    return network.float()


def _load_donut(name: str, config: Stock) -> Donut:
    with quiet_loading(), as_model_error(Path(name), "Donut processor"):
        processor = DonutProcessor.from_pretrained(name)
    network = _weights(VisionEncoderDecoderModel, name, config)
    images = processor.image_processor
    height, width = _height_width(config.encoder.image_size)
    stored = (images.size["height"], images.size["width"])
    if stored != (height, width):
        # the encoder would pad pages of another size and say nothing
        images.size = {"height": height, "width": width}
    missing = [token for token in SPECIAL_TOKENS if token not in processor.tokenizer.get_vocab()]
    if missing:
        processor.tokenizer.add_tokens(missing, special_tokens=True)
        network.decoder.resize_token_embeddings(len(processor.tokenizer))
    positions = int(config.decoder.max_position_embeddings)
    network.generation_config.pad_token_id = processor.tokenizer.pad_token_id
    network.generation_config.forced_eos_token_id = None
    return Donut(network, processor, max_tokens=min(_ANSWER_TOKENS, positions))


def _load_pix2struct(name: str, config: Stock) -> Pix2Struct:
    with quiet_loading(), as_model_error(Path(name), "Pix2Struct processor"):
        processor = AutoProcessor.from_pretrained(name)
    network = _weights(Pix2StructForConditionalGeneration, name, config)
    return Pix2Struct(network, processor, max_tokens=_ANSWER_TOKENS)


def _load_paligemma(name: str, config: Stock) -> PaliGemma:
    with quiet_loading(), as_model_error(Path(name), "PaliGemma processor"):
        processor = AutoProcessor.from_pretrained(name)
    network = _weights(PaliGemmaForConditionalGeneration, name, config)
    return PaliGemma(network, processor, max_tokens=processor.image_seq_length + _ANSWER_TOKENS)


def _height_width(size: Stock) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


__all__ = ["READER", "load_document_model", "page_encoder"]
