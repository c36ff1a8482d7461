"""`Preprocessor`: samples to tensors, as the checkpoint's own processor does it."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import BaseImageProcessor, LlavaProcessor, PreTrainedTokenizerBase

from qpriv.datasets.decoding import Keyed, load_picture
from qpriv.datasets.sample import Box, VQASample
from qpriv.errors import ConfigError, DataError, ModelError

from ..batch import VQABatch
from ..decoder.sequences import IGNORED, Side, pad_rows
from .encoders import SensitivityEncoder

DEFAULT_PROMPT = "USER: <image>\n{question} ASSISTANT:"
"""LLaVA-1.5's prompt, byte for byte the same in training, evaluation and attacks."""


class Preprocessor:
    """Turns samples into a `VQABatch`; picklable, so it can be a loader's collate function.

    Both encoders see one crop: the pixels for the sensitivity encoder are made from CLIP's.

    Args:
        processor: The processor of the LLaVA checkpoint.
        question_tokenizer: The tokenizer of the CLIP text encoder.
        sensitivity_encoder: Tells size and normalisation of its input.
        grid: Rows and columns of LLaVA's patches.
        max_tokens: Longest sequence of the language model.
        max_question_tokens: Longest question of the text encoder (77 for CLIP); what is longer
            is cut there, as CLIP was trained.
        prompt: Template with one ``<image>`` and one ``{question}``; the answer follows after a
            space, and then the end token.

    Raises:
        ConfigError: If the template lacks ``<image>`` or ``{question}``, or repeats one.
        ModelError: If the processor counts other image tokens than the tower has patches.
    """

    def __init__(
        self,
        processor: LlavaProcessor,
        question_tokenizer: PreTrainedTokenizerBase,
        sensitivity_encoder: SensitivityEncoder,
        *,
        grid: tuple[int, int],
        max_tokens: int,
        max_question_tokens: int,
        prompt: str = DEFAULT_PROMPT,
    ) -> None:
        for part in ("<image>", "{question}"):
            if prompt.count(part) != 1:
                raise ConfigError(f"prompt must hold {part} once, is {prompt!r}")
        self.prompt = prompt
        self.grid = grid
        self.tokenizer: PreTrainedTokenizerBase = processor.tokenizer
        self.image_processor: BaseImageProcessor = processor.image_processor
        self.image_token: int = processor.image_token_id
        self._image_word: str = processor.image_token
        self._question_tokenizer = question_tokenizer
        self._max_tokens, self._max_question_tokens = max_tokens, max_question_tokens
        self._sensitivity_size = sensitivity_encoder.size
        self._sensitivity_mean, self._sensitivity_std = (
            _per_channel(sensitivity_encoder.mean),
            _per_channel(sensitivity_encoder.std),
        )
        self._check_image_tokens(processor)

    @property
    def num_patches(self) -> int:
        """Return the number of image tokens ``N`` before pruning."""
        return self.grid[0] * self.grid[1]

    @property
    def input_size(self) -> tuple[int, int]:
        """Return height and width of the crop in pixels."""
        crop = self.image_processor.crop_size
        return int(crop["height"]), int(crop["width"])

    @property
    def pad_token(self) -> int:
        """Return the id that pads sequences; the end token where a tokenizer has no pad."""
        pad = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad is None else pad)

    def __call__(self, samples: Sequence[VQASample]) -> VQABatch:
        """Return the samples as one batch.

        Raises:
            DataError: If an image cannot be read, or a text is too long or holds ``<image>``.
        """
        pixels = self.pixels(samples)
        prompts = [self.prompt_tokens(sample) for sample in samples]
        texts = [self.text_tokens(sample) for sample in samples]
        pairs = list(zip(texts, prompts, strict=True))
        labels = [[IGNORED] * len(prompt) + text[len(prompt) :] for text, prompt in pairs]
        questions = self.question_tokens([sample.question for sample in samples])
        return VQABatch(
            samples=tuple(samples),
            pixel_values=pixels,
            sensitivity_pixels=self.sensitivity_pixels(pixels),
            question_ids=questions["input_ids"],
            question_mask=questions["attention_mask"],
            input_ids=_padded(texts, self.pad_token, "right"),
            attention_mask=_mask(texts, "right"),
            labels=_padded(labels, IGNORED, "right"),
            prompt_ids=_padded(prompts, self.pad_token, "left"),
            prompt_mask=_mask(prompts, "left"),
        )

    def pixels(self, samples: Sequence[Keyed]) -> Tensor:
        """Return the crops as the checkpoint's image processor makes them, ``[B, 3, H, W]``."""
        images = [load_picture(sample) for sample in samples]
        pixels: Tensor = self.image_processor(images=images, return_tensors="pt")["pixel_values"]
        return pixels

    def crops(self, pixels: Tensor) -> Tensor:
        """Undo CLIP's normalisation: RGB in [0, 1], ``[B, 3, H, W]``."""
        mean = _per_channel(self.image_processor.image_mean).to(pixels)
        std = _per_channel(self.image_processor.image_std).to(pixels)
        return (pixels * std + mean).clamp(0, 1)

    def sensitivity_pixels(self, pixels: Tensor) -> Tensor:
        """Return the same crops for the sensitivity encoder, ``[B, 3, h, w]``."""
        crops = self.crops(pixels)
        if crops.shape[-2:] != self._sensitivity_size:
            crops = functional.interpolate(
                crops, size=self._sensitivity_size, mode="bicubic", antialias=True
            ).clamp(0, 1)
        return (crops - self._sensitivity_mean) / self._sensitivity_std

    def prompt_tokens(self, sample: VQASample) -> list[int]:
        """Return the ids of the prompt, with one image id a patch."""
        return self._tokens(self.prompt_text(sample), sample)

    def check_text(self, sample: VQASample) -> None:
        """Check that a sample's text can be made a sequence, in a microsecond where it is short.

        Raises:
            DataError: If it is too long, or holds the image's word.
            ModelError: If a token spans the border between prompt and answer.
        """
        text = f"{self.prompt_text(sample)} {sample.answer}"
        # a token is a byte of text at least; the marks of begin and end come on top
        if len(text.encode()) + self.num_patches + 8 > self._max_tokens or (
            self._image_word in f"{sample.question} {sample.answer}"
        ):
            self.text_tokens(sample)

    def text_tokens(self, sample: VQASample) -> list[int]:
        """Return the ids of prompt, answer and end token.

        Raises:
            DataError: If they are more than the language model takes.
            ModelError: If a token spans the border between prompt and answer.
        """
        prompt = self.prompt_tokens(sample)
        text = self._tokens(f"{self.prompt_text(sample)} {sample.answer}", sample)
        if text[: len(prompt)] != prompt:
            raise ModelError(
                "a token spans the border between prompt and answer",
                where=f"prompt {self.prompt!r}",
                remedy="end the prompt with a punctuation mark and no space",
            )
        text.append(int(self.tokenizer.eos_token_id))
        if len(text) > self._max_tokens:
            raise DataError(
                f"question and answer make {len(text)} tokens, the model takes {self._max_tokens}",
                where=sample.key,
            )
        return text

    def prompt_text(self, sample: VQASample) -> str:
        """Return the prompt as a person would read it, with a single ``<image>``."""
        return self.prompt.replace("{question}", sample.question)

    def question_tokens(self, questions: Sequence[str]) -> dict[str, Tensor]:
        """Return CLIP's ``input_ids`` and ``attention_mask`` of bare questions, ``[B, Tq]``."""
        tokens: dict[str, Tensor] = self._question_tokenizer(
            list(questions),
            padding=True,
            truncation=True,
            max_length=self._max_question_tokens,
            return_tensors="pt",
        )
        return tokens

    def encoder_settings(self) -> tuple[str, ...]:
        """Return what the encoders' input depends on beside the samples, for cache keys."""
        return (
            self.image_processor.to_json_string(),
            repr((self._sensitivity_size, self._sensitivity_mean, self._sensitivity_std)),
            repr(sorted(self._question_tokenizer.get_vocab().items())),
            str(self._max_question_tokens),
        )

    def patch_coverage(self, boxes: Sequence[Box], image_size: tuple[int, int]) -> Tensor:
        """Return which share of each patch lies in any of the boxes, ``[N]`` in [0, 1].

        The boxes are moved as the crop moves pixels: shorter side scaled to the processor's
        size, then the middle cut out.

        Args:
            boxes: Boxes in pixels of the stored image.
            image_size: Width and height of the stored image in pixels.
        """
        height, width = self.input_size
        (x_scale, left), (y_scale, top) = self._crop_geometry(image_size)
        inside = np.zeros((height, width), dtype=np.float32)
        for box in boxes:
            x0, x1 = (max(round(x * x_scale) - left, 0) for x in (box[0], box[2]))
            y0, y1 = (max(round(y * y_scale) - top, 0) for y in (box[1], box[3]))
            inside[y0:y1, x0:x1] = 1
        plane = torch.from_numpy(inside)[None, None]
        return functional.adaptive_avg_pool2d(plane, self.grid).flatten()

    def _crop_geometry(self, image_size: tuple[int, int]) -> list[tuple[float, int]]:
        """Return for x and y the scale of the image, and where the crop begins when scaled."""
        size, (height, width) = self.image_processor.size, self.input_size
        shortest = size.get("shortest_edge")
        resized = (size.get("width"), size.get("height"))
        return [
            (
                scale := (shortest / min(image_size) if shortest else resized[axis] / length),
                int((length * scale - crop) / 2),
            )
            for axis, (length, crop) in enumerate(zip(image_size, (width, height), strict=True))
        ]

    def _tokens(self, text: str, sample: VQASample) -> list[int]:
        run = self._image_word * self.num_patches
        ids: list[int] = self.tokenizer(text.replace("<image>", run, 1))["input_ids"]
        if ids.count(self.image_token) != self.num_patches:
            raise DataError(
                f"question or answer holds the text {self._image_word}",
                where=sample.key,
                remedy="remove it: the prompt template places the image",
            )
        return ids

    def _check_image_tokens(self, processor: LlavaProcessor) -> None:
        height, width = self.input_size
        patch = processor.patch_size or 0
        counted = (height // patch) * (width // patch) if patch else 0
        counted += processor.num_additional_image_tokens
        counted -= processor.vision_feature_select_strategy == "default"
        if counted != self.num_patches:
            raise ModelError(
                f"the processor counts {counted} image tokens, the tower has {self.num_patches}",
                where="processor_config.json",
                remedy="set patch_size, vision_feature_select_strategy and "
                "num_additional_image_tokens (1 for CLIP's class token) as in the model",
            )


def _per_channel(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)


def _padded(rows: list[list[int]], filler: int, side: Side) -> Tensor:
    return pad_rows([torch.tensor(row) for row in rows], filler, side)


def _mask(rows: list[list[int]], side: Side) -> Tensor:
    return pad_rows([torch.ones(len(row), dtype=torch.long) for row in rows], 0, side)
