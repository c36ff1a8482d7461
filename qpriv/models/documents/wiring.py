"""Tiny Pix2Struct and PaliGemma with random weights: they prove the wiring and read nothing."""

import string

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import (
    AddedToken,
    GemmaConfig,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
    PaliGemmaProcessor,
    Pix2StructConfig,
    Pix2StructForConditionalGeneration,
    Pix2StructImageProcessor,
    Pix2StructProcessor,
    PreTrainedTokenizerFast,
    SiglipImageProcessor,
    SiglipVisionConfig,
)

from .paligemma import PaliGemma
from .pix2struct import Pix2Struct


def character_tokenizer(*specials: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token a printable character."""
    names = ("<pad>", "</s>", "<s>", "<unk>", *specials)
    vocabulary = [*names, *string.printable[:95], "\n"]
    tokenizer = Tokenizer(models.WordLevel({t: n for n, t in enumerate(vocabulary)}, "<unk>"))
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        bos_token="<s>",
        unk_token="<unk>",
    )
    fast.add_special_tokens(
        {"additional_special_tokens": [AddedToken(name, special=True) for name in specials]}
    )
    return fast


def tiny_pix2struct(max_patches: int = 64, seed: int = 0) -> Pix2Struct:
    """Return a Pix2Struct with random weights."""
    tokenizer = character_tokenizer()
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "d_kv": 16,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 2,
        "dropout_rate": 0.0,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
    }
    vision = {
        "hidden_size": 32,
        "patch_embed_hidden_size": 768,  # 16 x 16 pixels of three channels
        "d_ff": 64,
        "d_kv": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "dropout_rate": 0.0,
        "seq_len": max_patches,
    }
    config = Pix2StructConfig(text_config=text, vision_config=vision)
    config.decoder_start_token_id = tokenizer.pad_token_id
    config.pad_token_id, config.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = Pix2StructForConditionalGeneration(config).eval()
    images = Pix2StructImageProcessor(max_patches=max_patches, is_vqa=False)
    return Pix2Struct(network, Pix2StructProcessor(images, tokenizer), max_tokens=24)


def tiny_paligemma(image_size: int = 28, seed: int = 0) -> PaliGemma:
    """Return a PaliGemma with random weights."""
    patches = (image_size // 14) ** 2
    images = SiglipImageProcessor(size={"height": image_size, "width": image_size})
    images.image_seq_length = patches
    processor = PaliGemmaProcessor(images, character_tokenizer("<image>"))
    tokenizer = processor.tokenizer
    text = GemmaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    vision = SiglipVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=image_size,
        patch_size=14,
        projection_dim=32,
        vision_use_head=False,
    )
    config = PaliGemmaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        hidden_size=32,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = PaliGemmaForConditionalGeneration(config).eval()
    return PaliGemma(network, processor, max_tokens=patches + 64)
