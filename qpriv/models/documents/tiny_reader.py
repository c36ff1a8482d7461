"""The architecture of the embedded reader: a Donut-class model small enough for a laptop."""

import re
import string

from transformers import (
    DonutImageProcessor,
    DonutProcessor,
    MBartConfig,
    MBartForCausalLM,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    XLMRobertaTokenizer,
)

from qpriv.datasets.documents.fake_fields import FIELD_KINDS, QUESTIONS

from .page_encoder import PageEncoder, PageEncoderConfig

SPECIAL_TOKENS = (
    "<s_docvqa>",
    "<s_question>",
    "</s_question>",
    "<s_answer>",
    "</s_answer>",
    "<yes/>",
    "<no/>",
)
"""What the official fine-tuning of Donut on DocVQA adds to the vocabulary."""

MAX_TOKENS = 64
"""Longest question with its answer, in tokens."""


def question_words() -> list[str]:
    """Return the words questions are made of: one token each, so that prompts stay short."""
    nouns = [noun for kind in FIELD_KINDS.values() for _, noun in kind.labels]
    text = " ".join((*QUESTIONS, *nouns, "of", "ANSWER NOT PRESENT"))
    return sorted(set(re.findall(r"(?<![{\w])(?:[a-z]{2,}|[A-Z]{2,})(?![}\w])", text)))


def build_tokenizer() -> XLMRobertaTokenizer:
    """Return a tokenizer with one token a question word and one a printable character."""
    pieces = ["▁", *string.ascii_letters, *string.digits, *string.punctuation]
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = [(token, 0.0) for token in specials]
    vocabulary += [(f"▁{word}", -1.0) for word in question_words()]
    vocabulary += [(piece, -2.0) for piece in pieces]
    tokenizer = XLMRobertaTokenizer(vocab=vocabulary)
    tokenizer.add_tokens(list(SPECIAL_TOKENS), special_tokens=True)
    return tokenizer


def build_processor(image_size: tuple[int, int]) -> DonutProcessor:
    """Return the processor for pages of a height and width."""
    images = DonutImageProcessor(
        size={"height": image_size[0], "width": image_size[1]},
        do_align_long_axis=False,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    return DonutProcessor(images, build_tokenizer())


def build_reader(
    processor: DonutProcessor, image_size: tuple[int, int] = (64, 128), width: int = 128
) -> VisionEncoderDecoderModel:
    """Return a reader with random weights for a processor's vocabulary."""
    tokenizer = processor.tokenizer
    encoder = PageEncoder(PageEncoderConfig(image_size=image_size, hidden_size=width))
    decoder = MBartForCausalLM(
        MBartConfig(
            vocab_size=len(tokenizer),
            d_model=width,
            # the cache is sized by `encoder_layers`, even where there is no encoder
            encoder_layers=2,
            decoder_layers=2,
            decoder_attention_heads=4,
            decoder_ffn_dim=2 * width,
            max_position_embeddings=MAX_TOKENS,
            dropout=0.0,
            init_std=0.05,
            scale_embedding=False,
            add_final_layer_norm=True,
            is_decoder=True,
            add_cross_attention=True,
            is_encoder_decoder=False,
            forced_eos_token_id=None,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder.config, decoder.config)
    config.pad_token_id = tokenizer.pad_token_id
    config.eos_token_id = tokenizer.eos_token_id
    config.decoder_start_token_id = tokenizer.convert_tokens_to_ids("<s_docvqa>")
    return VisionEncoderDecoderModel(config=config, encoder=encoder, decoder=decoder)
