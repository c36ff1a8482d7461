"""A complete backbone with random weights, for tests of wiring and of exact equalities.

`build_random_backbone` writes the three folders a backbone consists of (``llava``, ``clip``,
``dino``), so tests go through the very loading code that real checkpoints use. The sizes differ
from each other on purpose: a transposed or confused dimension fails instead of passing.
"""

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import timm
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from qpriv.datasets.sample import AnswerType, ArrayImage, VQASample
from qpriv.models.batch import VQABatch
from qpriv.models.decoder.sequences import TokenSelection, TokenSequences, shorten
from qpriv.models.llava.vision_language import VisionLanguageModel

IMAGE_SIZE, PATCH_SIZE, NUM_LAYERS, HIDDEN_SIZE = 64, 8, 8, 64
NUM_PATCHES = (IMAGE_SIZE // PATCH_SIZE) ** 2
VISION_WIDTH, QUESTION_WIDTH = 64, 48
SENSITIVITY_WIDTH, SENSITIVITY_GRID, SENSITIVITY_PATCH = 32, 4, 8

WORDS = tuple(
    "user assistant : ? . , ' - what is the are there how many which in a an of it does this picture "
    "color colour shape left right above below side on to red green blue yellow black white orange "
    "purple brown grey circle square triangle rectangle yes no zero one two three four five six "
    "seven eight nine 0 1 2 3 4 5 6 7 8 9 cat dog person face object objects image any".split()
)
QUESTIONS = (
    ("what color is the circle ?", "red"),
    ("is there a square in the picture ?", "yes"),
    ("how many objects are there ?", "two"),
    ("what shape is blue ?", "blue triangle"),
)


def build_random_backbone(folder: Path, *, seed: int = 0) -> Path:
    """Write ``llava``, ``clip`` and ``dino`` folders with random weights under ``folder``."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        _build_llava(folder / "llava")
        _build_clip(folder / "clip")
        _build_dino(folder / "dino")
    return folder


@cache
def random_backbone() -> Path:
    """Return the folder of one random backbone, built once a process and removed at its end."""
    folder = Path(tempfile.mkdtemp(prefix="qpriv-random-backbone-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build_random_backbone(folder)


def random_model() -> VisionLanguageModel:
    """Return a freshly loaded model of `random_backbone`, which the caller may change."""
    return VisionLanguageModel.from_pretrained(str(random_backbone()))


def random_samples(count: int, *, seed: int = 0) -> list[VQASample]:
    """Return samples with noise images, whose questions and answers differ in length."""
    generator = np.random.default_rng(seed)
    samples = []
    for number in range(count):
        question, answer = QUESTIONS[number % len(QUESTIONS)]
        pixels = generator.integers(0, 256, (IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)
        samples.append(
            VQASample(
                dataset="Random",
                split="test",
                qid=str(number),
                image_id=str(number),
                group_id=str(number),
                image=ArrayImage(pixels),
                question=question,
                answer=answer,
                answers=(answer,),
                answer_type=AnswerType.OPEN,
                relevant_boxes=((0, 0, 16, 16),),
                sensitive_boxes=((32, 32, 56, 56),),
                meta={"question_type": question.split()[0]},
            )
        )
    return samples


def padded(
    model: VisionLanguageModel, batch: VQABatch, decision: TokenSelection | None, side: str
) -> TokenSequences:
    """Return the model's sequences padded on a side of choice; the model itself pads right."""
    return shorten(
        batch.input_ids,
        batch.attention_mask,
        batch.labels,
        image_token=model.preprocessor.image_token,
        pad_token=model.preprocessor.pad_token,
        num_patches=model.num_patches,
        selection=decision,
        side=side,  # type: ignore[arg-type]
    )


def word_tokenizer(specials: tuple[str, ...], *, bos: str, eos: str, close: bool) -> Tokenizer:
    """Return a word-level tokenizer; ``close`` adds the end token to every text, as CLIP does."""
    vocabulary = {word: number for number, word in enumerate((*specials, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(r"\w+|[^\w\s]"), behavior="removed", invert=True
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}" if close else f"{bos} $A",
        special_tokens=[(bos, vocabulary[bos]), (eos, vocabulary[eos])],
    )
    return tokenizer


def _vision_config() -> dict[str, object]:
    return {
        "model_type": "clip_vision_model",
        "hidden_size": VISION_WIDTH,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": IMAGE_SIZE,
        "patch_size": PATCH_SIZE,
        "projection_dim": 40,
        # the default of 0.02 leaves random features nearly equal, so tests could not see a mix-up
        "initializer_factor": 4.0,
    }


def _image_processor() -> CLIPImageProcessor:
    size = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    return CLIPImageProcessor(size={"shortest_edge": IMAGE_SIZE}, crop_size=size)


def _build_llava(folder: Path) -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(
            ("<pad>", "<s>", "</s>", "<unk>", "<image>"), bos="<s>", eos="</s>", close=False
        ),
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens={"image_token": "<image>"},
    )
    vocabulary = len(tokenizer)
    config = LlavaConfig(
        vision_config=_vision_config(),
        text_config={
            "model_type": "llama",
            "vocab_size": vocabulary,
            "hidden_size": HIDDEN_SIZE,
            "intermediate_size": 128,
            "num_hidden_layers": NUM_LAYERS,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": 256,
            "initializer_range": 0.2,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=NUM_PATCHES,
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    LlavaProcessor(
        image_processor=_image_processor(),
        tokenizer=tokenizer,
        patch_size=PATCH_SIZE,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)


def _build_clip(folder: Path) -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(
            # an end id of 2 would select CLIP's pooling by largest id, a relic of old conversions
            ("<unk>", "<pad>", "<start>", "<end>"),
            bos="<start>",
            eos="<end>",
            close=True,
        ),
        bos_token="<start>",
        eos_token="<end>",
        unk_token="<unk>",
        pad_token="<pad>",
        model_max_length=16,
    )
    config = CLIPConfig(
        vision_config=_vision_config(),
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": QUESTION_WIDTH,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 16,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "initializer_factor": 4.0,
        },
        projection_dim=40,
    )
    CLIPModel(config).save_pretrained(folder)
    CLIPProcessor(image_processor=_image_processor(), tokenizer=tokenizer).save_pretrained(folder)


def _build_dino(folder: Path) -> None:
    size = SENSITIVITY_GRID * SENSITIVITY_PATCH
    arguments = {
        "img_size": size,
        "patch_size": SENSITIVITY_PATCH,
        "embed_dim": SENSITIVITY_WIDTH,
        "depth": 2,
        "num_heads": 2,
        "init_values": 1.0,
    }
    model = timm.create_model("vit_small_patch14_dinov2", num_classes=0, **arguments)
    folder.mkdir(parents=True)
    save_file(model.state_dict(), folder / "model.safetensors")
    config = {
        "architecture": "vit_small_patch14_dinov2",
        "num_classes": 0,
        "num_features": SENSITIVITY_WIDTH,
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [3, size, size],
            "num_classes": 0,
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
            "interpolation": "bicubic",
            "crop_pct": 1.0,
        },
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
