"""What policies may ask for beside the features that are always there, against slow oracles."""

import json
import shutil

import pytest
import torch
from torch.testing import assert_close
from transformers import CLIPModel, CLIPTextModel

from qpriv.errors import ModelError
from qpriv.models.cache import FeatureCache, stored_features
from qpriv.models.features import FEATURES, Needs
from qpriv.models.llava.tower import read_tower
from qpriv.models.llava.vision_language import VisionLanguageModel
from tests.tiny_models import NUM_PATCHES, build_random_backbone, random_backbone, random_samples

ALL: Needs = frozenset(FEATURES)
HEADS, HEAD_WIDTH, PROJECTION = 4, 16, 40
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def asked(model, batch):
    return model.encode(batch, ALL)


@pytest.fixture(scope="module")
def eager(model, batch):
    """The tower's own attention maps and hidden states, which only eager attention hands out."""
    tower = model.vision_tower
    before = tower.config._attn_implementation
    tower.set_attn_implementation("eager")
    seen = tower(batch.pixel_values, output_attentions=True, output_hidden_states=True)
    tower.set_attn_implementation(before)
    assert before == "sdpa"
    return seen


def test_only_what_is_asked_for_is_there(model, batch, features):
    for name in FEATURES:
        assert getattr(features, name) is None
        one = model.encode(batch, frozenset({name}))
        present = [other for other in FEATURES if getattr(one, other) is not None]
        assert present == [name]
        assert torch.equal(one.patches, features.patches)
    with pytest.raises(ModelError, match="hold no keys"):
        features.need("keys")


def test_shapes_and_types(asked):
    shapes = {
        "cls_attention": (4, 64),
        "keys": (4, 64, HEAD_WIDTH),
        "class_token": (4, 64),
        "last_query": (4, HEADS * HEAD_WIDTH),
        "last_keys": (4, 65, HEADS * HEAD_WIDTH),
        "projected": (4, 64, 64),
        "image_embeds": (4, 64, PROJECTION),
        "text_embeds": (4, PROJECTION),
        "neutral_question": tuple(asked.question.shape),
    }
    assert {name: tuple(asked.need(name).shape) for name in FEATURES} == shapes
    assert asked.cls_attention.dtype == torch.float32
    assert not any(asked.need(name).requires_grad for name in FEATURES)
    assert torch.equal(asked[1:3].last_keys, asked.last_keys[1:3])


def test_class_attention_is_the_eager_one_of_the_feature_layer(model, asked, eager):
    assert model.stock.config.vision_feature_layer == -2
    maps = eager.attentions[-2]
    assert_close(asked.cls_attention, maps[:, :, 0, 1:].sum(dim=1), **CLOSE)
    other = eager.attentions[-1][:, :, 0, 1:].sum(dim=1)
    assert (asked.cls_attention - other).abs().max() > 1e-3


def test_keys_are_those_of_the_feature_layer(model, asked, eager):
    layer = model.vision_tower.encoder.layers[-2]
    keys = layer.self_attn.k_proj(layer.layer_norm1(eager.hidden_states[-3]))
    mean = keys.view(4, 65, HEADS, HEAD_WIDTH).mean(dim=2)
    assert_close(asked.keys, mean[:, 1:], **CLOSE)


def test_the_last_layers_class_row_comes_of_query_and_keys(asked, eager):
    query = asked.last_query.view(4, HEADS, HEAD_WIDTH)
    keys = asked.last_keys.view(4, 65, HEADS, HEAD_WIDTH)
    row = torch.einsum("bhd,bnhd->bhn", query, keys) * HEAD_WIDTH**-0.5
    assert_close(row.softmax(dim=-1), eager.attentions[-1][:, :, 0], **CLOSE)


def test_class_token_stands_before_the_patches_of_its_layer(asked, eager):
    whole = torch.cat((asked.class_token[:, None], asked.patches), dim=1)
    assert_close(whole, eager.hidden_states[-2], **CLOSE)


def test_projected_patches_are_what_the_language_model_reads(model, batch, asked):
    stock = model.stock.model.get_image_features(batch.pixel_values)
    assert_close(asked.projected, torch.stack(list(stock.pooler_output)), **CLOSE)


def test_embeds_are_those_of_clip(model, batch, asked):
    clip = CLIPModel.from_pretrained(random_backbone() / "clip")
    text = clip.get_text_features(batch.question_ids, attention_mask=batch.question_mask)
    assert_close(asked.text_embeds, text.pooler_output, **CLOSE)
    image = clip.visual_projection(model.vision_tower.post_layernorm(asked.patches))
    assert_close(asked.image_embeds, image, **CLOSE)


@pytest.mark.parametrize("layers", [[-2], [2], [1, 2], [-1]])
def test_attention_follows_the_last_feature_layer(model, batch, eager, layers):
    needs: Needs = frozenset({"cls_attention", "class_token"})
    found = read_tower(model.vision_tower, batch.pixel_values, layers, needs)
    states = eager.hidden_states
    assert_close(found["class_token"], torch.cat([states[i][:, 0] for i in layers], -1), **CLOSE)
    number = {-2: 1, 2: 1, -1: 2}[layers[-1]]
    maps = eager.attentions[number]
    assert_close(found["cls_attention"], maps[:, :, 0, 1:].sum(dim=1), **CLOSE)


# stored


def test_what_is_stored_is_what_the_encoders_say_and_does_not_depend_on_neighbours(model, tmp_path):
    samples = random_samples(5)
    whole, single = FeatureCache(model, tmp_path / "a"), FeatureCache(model, tmp_path / "b")
    together, plain = whole(model.preprocessor(samples), ALL), model.encode(
        model.preprocessor(samples), ALL
    )  # fmt: skip
    for row in reversed(range(5)):
        alone = single(model.preprocessor(samples[row : row + 1]), ALL)
        for name in FEATURES:
            assert torch.equal(alone.need(name)[0], together.need(name)[row]), name
    for name in FEATURES:
        assert_close(together.need(name), plain.need(name), **CLOSE)


def test_a_cache_filled_without_needs_is_completed_and_never_grows_for_nothing(
    model, batch, tmp_path, monkeypatch
):
    cache = FeatureCache(model, tmp_path)
    plain = cache(batch)
    before = {path: path.stat().st_size for path in stored_features(tmp_path)}
    assert {path.parent.name for path in before} == {"image", "question", "sensitivity"}
    asked = FeatureCache(model, tmp_path)(batch, frozenset({"cls_attention", "projected"}))
    assert torch.equal(asked.patches, plain.patches)
    after = {path: path.stat().st_size for path in stored_features(tmp_path)}
    assert {path.parent.name for path in after.keys() - before.keys()} == {"cls_attention"}
    assert before.items() <= after.items()
    assert sum(after.values()) - sum(before.values()) < 4 * NUM_PATCHES * 4 + 1000
    monkeypatch.setattr(model, "encode_images", None)
    again = FeatureCache(model, tmp_path)(batch, frozenset({"cls_attention"}))
    assert torch.equal(again.cls_attention, asked.cls_attention)
    assert FeatureCache(model, tmp_path)(batch).cls_attention is None


def test_several_needs_cost_one_pass_of_the_tower(model, batch, tmp_path, monkeypatch):
    passes = []
    encode = model.encode_images

    def counted(pixels, needs):
        passes.append(len(pixels))
        return encode(pixels, needs)

    monkeypatch.setattr(model, "encode_images", counted)
    FeatureCache(model, tmp_path)(batch, ALL)
    assert len(passes) == 1


# projections


def test_a_text_tower_alone_has_no_projections(tmp_path):
    folder = build_random_backbone(tmp_path / "whole")
    text = CLIPTextModel.from_pretrained(folder / "clip")
    tokenizer = [path for path in (folder / "clip").iterdir() if "token" in path.name]
    kept = {path.name: path.read_bytes() for path in tokenizer}
    shutil.rmtree(folder / "clip")
    text.save_pretrained(folder / "clip")
    for name, content in kept.items():
        (folder / "clip" / name).write_bytes(content)
    assert json.loads((folder / "clip/config.json").read_text())["model_type"] == "clip_text_model"
    model = VisionLanguageModel.from_pretrained(str(folder))
    batch = model.preprocessor(random_samples(1))
    assert model.encode(batch).question.shape == (1, 48)
    with pytest.raises(ModelError, match="no projections"):
        model.encode(batch, frozenset({"text_embeds"}))


def test_the_projections_of_another_clip_are_refused(batch):
    model = VisionLanguageModel.from_pretrained(str(random_backbone()))
    with torch.no_grad():
        model.vision_tower.post_layernorm.weight.mul_(1.5)
    with pytest.raises(ModelError, match="not that of this CLIP"):
        model.encode(batch, frozenset({"image_embeds"}))
