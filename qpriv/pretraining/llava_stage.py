"""Stage 3: the language model that answers questions about what the frozen tower sees."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from torch import Tensor, nn
from transformers import (
    CLIPModel,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

from .clip_stage import image_processor
from .reading import Reader, tower_features
from .reconstruction import PixelReadout
from .scene_tensors import NUM_PATCHES, PATCH, SceneTensors, patches
from .training import train
from .vocabulary import IMAGE, tokenizer

WIDTH = 192
LAYERS = 8
BATCH = 32
QUESTIONS = 4
"""Questions of an image that share a sequence."""

KEPT = (64, 64, 48, 32, 16)
"""Numbers of image tokens that survive, one drawn a batch: so the model bears pruning."""

READOUT_LAYERS = (2, 4, 6)
"""Decoder layers at whose input the pixels must still be readable: where the model is cut."""


def new_model(clip: CLIPModel, seed: int) -> LlavaForConditionalGeneration:
    """Return a LLaVA with CLIP's vision tower and a random language model of 3.4 M parameters."""
    words = tokenizer(ends=False)
    text = LlamaConfig(
        vocab_size=len(words),
        hidden_size=WIDTH,
        intermediate_size=WIDTH * 5 // 2,
        num_hidden_layers=LAYERS,
        num_attention_heads=6,
        max_position_embeddings=512,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    config = LlavaConfig(
        vision_config=clip.config.vision_config,
        text_config=text,
        image_token_index=words.convert_tokens_to_ids(IMAGE),
        image_seq_length=NUM_PATCHES,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
    )
    torch.manual_seed(seed)
    model = LlavaForConditionalGeneration(config)
    model.model.vision_tower.load_state_dict(clip.vision_model.state_dict())
    return model


def processor() -> LlavaProcessor:
    """Return the processor that belongs into the model's folder."""
    return LlavaProcessor(
        image_processor=image_processor(),
        tokenizer=tokenizer(ends=False),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token=IMAGE,
    )


class LlavaPretraining(nn.Module):
    """The loss over answers, and the pixels of each patch read off the layers a cut may expose.

    Args:
        model: Whose tower makes the features, once.
        scenes: What to train on.
        pixel_weight: Weight of the pixel loss.
    """

    def __init__(
        self,
        model: LlavaForConditionalGeneration,
        scenes: SceneTensors,
        pixel_weight: float = 0.5,
    ) -> None:
        super().__init__()
        self.scenes, self.pixel_weight = scenes, pixel_weight
        self.features = tower_features(model, scenes.pixels)
        self.readouts = nn.ModuleList(PixelReadout(WIDTH) for _ in READOUT_LAYERS)
        self.reader = Reader()
        self.segments = [[self.reader.segment(q) for q in asked] for asked in scenes.questions]

    def forward(self, model: LlavaForConditionalGeneration, rng: Generator) -> Tensor:
        """Return the loss of a random batch."""
        rows = rng.integers(len(self.scenes), size=BATCH)
        kept = draw_kept(rng, BATCH, int(rng.choice(KEPT)))
        features = self.features[rows[:, None], kept].float()
        reading = self.reader.read(model, features, [self._some(rng, int(row)) for row in rows])
        pixels = patches(self.scenes.pixels[rows])[torch.arange(BATCH)[:, None], kept]
        unread = [
            readout(reading.states[layer], pixels)
            for readout, layer in zip(self.readouts, READOUT_LAYERS, strict=True)
        ]
        answers = F.cross_entropy(reading.logits, reading.targets)
        return answers + self.pixel_weight * torch.stack(unread).mean()

    def _some(self, rng: Generator, row: int) -> list[list[int]]:
        segments = self.segments[row]
        return [segments[number] for number in rng.permutation(len(segments))[:QUESTIONS]]


def draw_kept(rng: Generator, count: int, number: int) -> Tensor:
    """Return which patches survive in each image, sorted, ``[count, number]``."""
    order = rng.random((count, NUM_PATCHES)).argsort(1)[:, :number]
    return torch.from_numpy(np.sort(order, axis=1))


def pretrain(
    model: LlavaForConditionalGeneration,
    scenes: SceneTensors,
    checkpoint: Path,
    *,
    steps: int,
    seed: int,
) -> None:
    """Train projector and language model in place; the tower stays as it is."""
    torch.manual_seed(seed)
    task = LlavaPretraining(model, scenes)
    learning = nn.ModuleDict(
        {
            "projector": model.model.multi_modal_projector,
            "language": model.model.language_model,
            "head": model.lm_head,
            "task": task,
        }
    ).train()
    train(
        "llava",
        learning,
        lambda rng: task(model, rng),
        steps=steps,
        seed=seed,
        checkpoint=checkpoint,
        weight_decay=0.01,
    )
    model.eval()
