import torch

from callbacks.probes.isolation import isolated
from qpriv.models.llava.vision_language import VisionLanguageModel
from tests.tiny_models import random_backbone, random_samples


def test_a_first_encoding_inside_a_probe_does_not_spoil_the_next():
    model = VisionLanguageModel.from_pretrained(str(random_backbone()))
    batch = model.preprocessor(random_samples(2))
    with isolated(model, seed=0):
        first = model.encode(batch)
    assert torch.equal(model.encode(batch).patches, first.patches)
