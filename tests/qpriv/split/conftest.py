from collections.abc import Iterator

import pytest
import torch

from qpriv.models.llava.vision_language import VisionLanguageModel
from tests.tiny_models import random_backbone


@pytest.fixture(scope="module")
def lora_model() -> VisionLanguageModel:
    """Return a random model whose LoRA is already away from zero, so that all gradients flow."""
    model = VisionLanguageModel.from_pretrained(str(random_backbone()))
    model.add_lora(rank=4)
    generator = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        if "lora_B" in name:
            value.data = torch.randn(value.shape, generator=generator) * 0.05
    return model.train()


@pytest.fixture
def model(lora_model: VisionLanguageModel) -> Iterator[VisionLanguageModel]:
    yield lora_model
    lora_model.zero_grad()
