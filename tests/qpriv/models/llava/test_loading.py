import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qpriv.errors import ModelError
from qpriv.models import registry
from qpriv.models.llava.encoders import load_sensitivity_encoder
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.models.registry import Backbone, locate, resolve_backbone
from tests.tiny_models import random_backbone, random_samples

load = VisionLanguageModel.from_pretrained


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the random backbone that a test may break."""
    return Path(shutil.copytree(random_backbone(), tmp_path / "backbone"))


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# names


def test_a_set_of_folders_is_one_backbone():
    folder = random_backbone()
    parts = (str(folder / part) for part in ("llava", "clip", "dino"))
    assert resolve_backbone(str(folder)) == Backbone(*parts)


def test_the_embedded_backbone_is_a_set_in_the_package():
    parts = resolve_backbone("tiny")
    assert Path(parts.llava) == Path(registry.__file__).parent / "tiny" / "llava"
    assert Path(parts.sensitivity_encoder).name == "dino"


def test_a_llava_alone_gets_the_papers_encoders_unless_told_otherwise():
    assert resolve_backbone("some/llava", sensitivity_encoder="my/vit") == Backbone(
        "some/llava", "openai/clip-vit-large-patch14-336", "my/vit"
    )


def test_parts_can_be_given_one_by_one():
    folder = random_backbone()
    model = load(
        str(folder / "llava"),
        text_encoder=str(folder / "clip"),
        sensitivity_encoder=str(folder / "dino"),
    )
    whole = load(str(folder))
    batch = model.preprocessor(random_samples(2))
    assert torch.equal(model(batch).logits, whole(batch).logits)
    assert model.encoder_fingerprint() == whole.encoder_fingerprint()


def test_a_missing_folder_is_named():
    with pytest.raises(ModelError, match="model folder is missing: /no/such/model"):
        load("/no/such/model")


def test_a_file_is_no_folder(folder):
    with pytest.raises(ModelError, match="is a file"):
        load(str(folder / "llava" / "config.json"))


def test_a_hub_id_downloads_no_pickle_and_no_code(monkeypatch):
    asked = {}

    def snapshot_download(hub_id, allow_patterns):
        asked[hub_id] = allow_patterns
        return str(random_backbone() / "llava")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert locate("some-org/llava-7b") == random_backbone() / "llava"
    (patterns,) = asked.values()
    assert not [p for p in patterns if p.endswith((".py", ".bin", ".pt", ".pkl", "*"))]
    assert "*.safetensors" in patterns


def test_an_unreachable_hub_id_is_one_line(monkeypatch):
    def snapshot_download(hub_id, allow_patterns):
        raise OSError("no route\nto host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(ModelError, match="some-org/llava-7b is no folder here") as caught:
        load("some-org/llava-7b")
    assert "\n" not in str(caught.value)


# broken folders


def test_a_folder_that_is_no_llava_is_refused():
    clip = str(random_backbone() / "clip")
    with pytest.raises(ModelError, match="a clip model, not a LLaVA"):
        load(clip)


def test_a_folder_without_config_is_refused(folder):
    (folder / "llava" / "config.json").unlink()
    with pytest.raises(ModelError, match="cannot load a model config"):
        load(str(folder))


def test_a_llava_whose_features_hold_the_class_token_is_refused(folder):
    edit(folder / "llava" / "config.json", vision_feature_select_strategy="full")
    with pytest.raises(ModelError, match="vision_feature_select_strategy is 'full'"):
        load(str(folder))


def test_a_processor_that_counts_one_token_too_few_is_refused(folder):
    """Without the class token the processor counts 575 for the 576 patches of LLaVA-1.5."""
    edit(folder / "llava" / "processor_config.json", num_additional_image_tokens=0)
    with pytest.raises(ModelError, match="the processor counts 63 image tokens, the tower has 64"):
        load(str(folder))


def test_a_processor_with_another_crop_is_refused(folder):
    path = folder / "llava" / "processor_config.json"
    images = json.loads(path.read_text())["image_processor"]
    edit(path, image_processor=images | {"crop_size": {"height": 32, "width": 32}})
    with pytest.raises(ModelError, match="the processor counts 16 image tokens"):
        load(str(folder))


def test_missing_weights_are_refused_and_not_made_up(folder):
    path = folder / "llava" / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if "up_proj" in name)
    save_file({key: weights[key] for key in weights if key != name}, path, {"format": "pt"})
    with pytest.raises(ModelError, match="1 weights are missing"):
        load(str(folder))


def test_torn_weights_are_refused(folder):
    path = folder / "llava" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot load a LLaVA") as caught:
        load(str(folder))
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("part", ["llava", "clip", "dino"])
def test_pickled_weights_are_never_opened(folder, part):
    (folder / part / "model.safetensors").unlink()
    torch.save({}, folder / part / "pytorch_model.bin")
    with pytest.raises(ModelError):
        load(str(folder))


def test_a_folder_that_is_no_clip_is_refused(folder):
    with pytest.raises(ModelError, match="model, not a CLIP"):
        load(str(folder), text_encoder=str(folder / "dino"))


def test_a_folder_that_is_no_vision_transformer_is_refused(folder):
    edit(folder / "dino" / "config.json", architecture="resnet18", model_args={})
    with pytest.raises(ModelError, match="not a timm vision transformer"):
        load(str(folder))


# options


def test_half_precision_weights_load_as_what_is_asked_for(folder):
    path = folder / "llava" / "model.safetensors"
    save_file({k: w.half() for k, w in load_file(path).items()}, path, {"format": "pt"})
    assert {weight.dtype for weight in load(str(folder)).parameters()} == {torch.float32}


def test_bfloat16_runs_through():
    model = load(str(random_backbone()), dtype="bfloat16")
    batch = model.preprocessor(random_samples(2))
    features = model.encode(batch)
    assert features.patches.dtype == features.sensitivity.dtype == torch.bfloat16
    assert model(batch, features).loss.isfinite()


@pytest.mark.filterwarnings("ignore:MatMul8bitLt")
@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_quantised_decoder_trains_and_the_tower_stays_whole(quantization):
    import bitsandbytes

    model = load(str(random_backbone()), quantization=quantization)
    kinds = (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)
    count = sum(isinstance(module, kinds) for module in model.modules())
    assert count == 7 * model.num_layers
    assert not any(isinstance(module, kinds) for module in model.vision_tower.modules())
    model.add_lora(rank=2)
    batch = model.preprocessor(random_samples(2))
    model(batch).loss.backward()
    grads = [weight.grad for weight in model.parameters() if weight.requires_grad]
    assert all(grad is not None for grad in grads)


def test_sensitivity_grid_is_bounded_like_the_papers(folder):
    encoder = load_sensitivity_encoder(folder / "dino", max_side=2)
    assert encoder.grid == (2, 2)
    assert encoder.size == (16, 16)
    assert encoder(torch.zeros(1, 3, 16, 16)).shape == (1, 4, 32)
    assert load_sensitivity_encoder(folder / "dino").grid == (4, 4)
