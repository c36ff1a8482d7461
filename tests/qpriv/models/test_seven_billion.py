"""LLaVA-1.5-7B with its encoders on the meta device: shapes, names and counts, and no weights."""

from types import SimpleNamespace

import pytest
import timm
import torch
from transformers import CLIPTextConfig, CLIPTextModel, LlavaForConditionalGeneration

from qpriv.models.features import FeatureSizes, VisualFeatures
from qpriv.models.llava.encoders import SensitivityEncoder
from qpriv.models.llava.lora import adapted_modules
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.models.registry import Backbone
from qpriv.paradigms import SplitLearning, UShapedSplit
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.paradigms.split import SERVER, client_name
from qpriv.planning.architecture import known_llava
from qpriv.pruning.predictor import DynamicThresholdPredictor, PredictorConfig

NAME = "llava-hf/llava-1.5-7b-hf"
LAYER = "base_model.model.model.language_model.layers"
PROJECTIONS = [f"self_attn.{x}_proj" for x in "qkvo"] + [
    f"mlp.{x}_proj" for x in ("gate", "up", "down")
]


def seven() -> VisionLanguageModel:
    text = CLIPTextConfig(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        attn_implementation="eager",  # the other one looks at the values of the mask
    )
    with torch.device("meta"):
        vit = timm.create_model("vit_small_patch14_dinov2", img_size=224, num_classes=0)
        return VisionLanguageModel(
            LlavaForConditionalGeneration(known_llava(NAME)),
            CLIPTextModel(text),
            SensitivityEncoder(vit),
            SimpleNamespace(grid=(24, 24), num_patches=576),
            Backbone(NAME),
        )


@pytest.fixture(scope="module")
def model() -> VisionLanguageModel:
    model = seven()
    with torch.device("meta"):
        model.add_lora(LoraRecipe().rank, 64.0)
    return model


def trained(model: VisionLanguageModel, adapter: str) -> int:
    named = model.named_parameters()
    return sum(weight.numel() for name, weight in named if f".{adapter}." in name)


def test_the_encoders_give_what_the_predictor_takes(model):
    with torch.device("meta"):
        features = VisualFeatures(
            **model.encode_images(torch.zeros(2, 3, 336, 336)),
            question=model.encode_questions(
                torch.zeros(2, 77, dtype=torch.long), torch.ones(2, 77, dtype=torch.long)
            ),
            sensitivity=model.encode_sensitivity(torch.zeros(2, 3, 224, 224)),
            grid=model.grid,
            sensitivity_grid=model.sensitivity_encoder.grid,
        )
        predictor = DynamicThresholdPredictor(PredictorConfig.scaled(model.feature_sizes))
        output = predictor(features)
    assert features.patches.shape == (2, 576, 1024) and features.pooled.shape == (2, 1024)
    assert features.sensitivity.shape == (2, 16 * 16, 384)
    assert model.feature_sizes == FeatureSizes(1024, 1024, 768, 384)
    assert predictor.config == PredictorConfig()  # scaled to the source's sizes: its own
    assert sum(weight.numel() for weight in predictor.parameters()) == 1_707_395
    assert output.soft_mask.shape == (2, 576) and output.ratio.shape == (2,)


def test_adapters_sit_on_every_projection_of_the_decoder_and_nowhere_else(model):
    expected = [f"{LAYER}.{n}.{name}" for n in range(32) for name in PROJECTIONS]
    assert adapted_modules(model.llava, "default") == expected
    learns = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert len(learns) == 2 * 7 * 32 and trained(model, "default") == 79_953_920


@pytest.mark.slow
def test_hooks_at_the_cuts_see_one_vector_of_4096_for_every_token(model):
    """230 kept patches and 64 text tokens, forward and backward through all that is adapted."""
    seen = {}

    def look(cut):
        return lambda layer, args, kwargs: seen.setdefault(cut, args[0].shape) and None

    cuts = (*SplitLearning().place(model.num_layers), *UShapedSplit().place(model.num_layers))
    handles = [
        model.decoder_layers[cut].register_forward_pre_hook(look(cut), with_kwargs=True)
        for cut in cuts
    ]
    with torch.device("meta"):
        image = model.projector(torch.zeros(1, 230, 1024))
        text = model.language_model.embed_tokens(torch.zeros(1, 64, dtype=torch.long))
        hidden = model.language_model(inputs_embeds=torch.cat((image, text), dim=1))
        logits = model.lm_head(hidden.last_hidden_state)
        logits.sum().backward()
    for handle in handles:
        handle.remove()
    assert seen == {16: (1, 294, 4096), 8: (1, 294, 4096), 24: (1, 294, 4096)}
    assert logits.shape == (1, 294, 32_064)
    reached = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert reached == {name for name, weight in model.named_parameters() if weight.requires_grad}


@pytest.mark.slow
def test_parties_share_the_adapters_of_the_decoder_among_them():
    half = 79_953_920 // 2
    for paradigm, layers in ((SplitLearning(), range(16, 32)), (UShapedSplit(), range(8, 24))):
        model = seven()
        paradigm.place(model.num_layers)
        with torch.device("meta"):
            paradigm.add_adapters(model, LoraRecipe(), seed=0)
        served = adapted_modules(model.llava, SERVER)
        assert served == [f"{LAYER}.{n}.{name}" for n in layers for name in PROJECTIONS]
        assert trained(model, SERVER) == trained(model, client_name(0)) == half
