"""Stage 1: the CLIP-class vision and text towers."""

from pathlib import Path

import torch
import torch.nn.functional as F
from numpy.random import Generator
from torch import Tensor, nn
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
)

from qpriv.datasets.scenes import COLORS, KINDS, SIDE

from .reconstruction import PixelReadout
from .scene_tensors import PATCH, SceneTensors, normalise, patches
from .training import train
from .vocabulary import tokenizer

WIDTH = 96
BATCH = 64
QUESTION_TYPES = ("color", "shape", "count", "exist")


def new_model(seed: int) -> CLIPModel:
    """Return a CLIP of 0.65 M parameters with random weights."""
    words = tokenizer(ends=True)
    layers = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_attention_heads": 4}
    text = {
        **layers,
        "num_hidden_layers": 2,
        "vocab_size": len(words),
        "max_position_embeddings": 77,
        "bos_token_id": words.bos_token_id,
        "eos_token_id": words.eos_token_id,
        "pad_token_id": words.pad_token_id,
    }
    vision = {**layers, "num_hidden_layers": 4, "image_size": SIDE, "patch_size": PATCH}
    torch.manual_seed(seed)
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=WIDTH))


def image_processor() -> CLIPImageProcessor:
    """Return CLIP's image processing at the size of a scene."""
    return CLIPImageProcessor(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
    )


def processor() -> CLIPProcessor:
    """Return the processor that belongs into the model's folder."""
    return CLIPProcessor(image_processor=image_processor(), tokenizer=tokenizer(ends=True))


class ClipPretraining(nn.Module):
    """CLIP's contrastive loss and the auxiliary losses that make so small a model learn fast.

    From the layer that LLaVA reads (the last but one), linear heads predict the colour and the
    kind of the shape in each patch, and the patch's pixels. From the text vector of a question,
    linear heads predict its type and the colour and kind it names. All heads are thrown away.

    Args:
        scenes: What to train on.
    """

    def __init__(self, scenes: SceneTensors) -> None:
        super().__init__()
        self.scenes = scenes
        self.color = nn.Linear(WIDTH, len(COLORS) + 1)
        self.kind = nn.Linear(WIDTH, len(KINDS) + 1)
        self.pixels = PixelReadout(WIDTH)
        self.question = nn.Linear(WIDTH, len(QUESTION_TYPES) + len(COLORS) + len(KINDS) + 2)
        self.tokenizer = tokenizer(ends=True)

    def forward(self, model: CLIPModel, rng: Generator) -> Tensor:
        """Return the loss of a random batch."""
        scenes, rows = self.scenes, rng.integers(len(self.scenes), size=BATCH)
        pixels = scenes.pixels[rows]
        vision = model.vision_model(normalise(pixels), output_hidden_states=True)
        features = vision.hidden_states[-2][:, 1:]
        captions = [scenes.captions[row] for row in rows]
        asked = [scenes.questions[row] for row in rows]
        questions = [some[rng.integers(len(some))] for some in asked]
        text = self._text(model, [*captions, *(question.text for question in questions)])
        contrast = _contrastive(model, vision.pooler_output, text[:BATCH], captions)
        dense = _cross_entropy(self.color(features), scenes.colors[rows])
        dense = dense + 2 * _cross_entropy(self.kind(features), scenes.kinds[rows])
        named = self._named([question.text for question in questions])
        kinds = torch.tensor([QUESTION_TYPES.index(question.kind) for question in questions])
        loss: Tensor = (
            contrast
            + dense
            + self.pixels(features, patches(pixels))
            + 0.3 * self._about(text[BATCH:], kinds, named)
        )
        return loss

    def _text(self, model: CLIPModel, texts: list[str]) -> Tensor:
        encoded = self.tokenizer(texts, padding=True, return_tensors="pt")
        pooled: Tensor = model.text_model(**_inputs(encoded)).pooler_output
        return pooled

    def _named(self, questions: list[str]) -> tuple[Tensor, Tensor]:
        words = [set(question.split()) for question in questions]
        found = ([_index(some, list(names)) for some in words] for names in (COLORS, KINDS))
        colors, kinds = (torch.tensor(numbers) for numbers in found)
        return colors, kinds

    def _about(self, text: Tensor, types: Tensor, named: tuple[Tensor, Tensor]) -> Tensor:
        sizes = [len(QUESTION_TYPES), len(COLORS) + 1, len(KINDS) + 1]
        parts = self.question(text).split(sizes, dim=-1)
        return sum(
            (F.cross_entropy(part, target) for part, target in zip(parts, (types, *named))),
            torch.zeros(()),
        )


def _inputs(encoded: object) -> dict[str, Tensor]:
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}  # type: ignore[index]


def _index(words: set[str], names: list[str]) -> int:
    return next((number for number, name in enumerate(names, start=1) if name in words), 0)


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss over patches; the many without a shape count a fifth."""
    weight = torch.ones(logits.shape[-1])
    weight[0] = 0.2
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), weight)


def _contrastive(model: CLIPModel, pooled: Tensor, text: Tensor, captions: list[str]) -> Tensor:
    """Return CLIP's loss; images that share a caption share the credit for it."""
    image = F.normalize(model.visual_projection(pooled), dim=-1)
    words = F.normalize(model.text_projection(text), dim=-1)
    logits = model.logit_scale.exp().clamp(max=100) * image @ words.T
    same = torch.tensor([[a == b for b in captions] for a in captions]).float()
    target = same / same.sum(1, keepdim=True)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def pretrain(
    model: CLIPModel, scenes: SceneTensors, checkpoint: Path, *, steps: int, seed: int
) -> None:
    """Train the towers in place."""
    torch.manual_seed(seed)
    task = ClipPretraining(scenes)
    modules = nn.ModuleDict({"clip": model.train(), "task": task})
    train(
        "clip", modules, lambda rng: task(model, rng), steps=steps, seed=seed, checkpoint=checkpoint
    )
    model.eval()
