import pytest
import torch

from qpriv.errors import ConfigError
from qpriv.models.inventory import inventory
from qpriv.models.llava.merging import merge_adapters
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms import UShapedSplit
from qpriv.paradigms.adapter import activate, adapter_folder, export_adapters
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.paradigms.split import SERVER, client_name
from tests.tiny_models import random_backbone, random_model, random_samples

LLAVA, CLIP, DINO = (str(random_backbone() / part) for part in ("llava", "clip", "dino"))


def learned(model, adapters, folder):
    """Give adapters something to add, and export them."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data = torch.randn(weight.shape, generator=generator) / 20
    export_adapters(model, adapters, folder)
    return {name: adapter_folder(folder, name) for name in adapters}


def test_a_merged_folder_is_a_backbone_that_answers_as_the_adapted_one(tmp_path):
    adapted = random_model()
    adapted.add_lora(rank=4)
    folders = learned(adapted, ["default"], tmp_path / "adapter")
    found = merge_adapters(LLAVA, folders, tmp_path / "merged")
    assert found.difference < 1e-4 * found.largest
    merged = VisionLanguageModel.from_pretrained(str(tmp_path / "merged"), CLIP, DINO)
    batch = merged.preprocessor(random_samples(3))
    torch.testing.assert_close(merged(batch).logits, adapted(batch).logits, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(merged(batch).logits, random_model()(batch).logits, atol=1e-2)
    assert merged.answer(batch) == adapted.answer(batch)
    adapted.merge_lora()
    torch.testing.assert_close(merged(batch).logits, adapted(batch).logits)
    assert not any("lora" in name for name, _ in adapted.named_parameters())
    with pytest.raises(ConfigError, match="something already"):
        merge_adapters(LLAVA, folders, tmp_path / "merged")


def test_a_server_and_its_client_are_merged_together(tmp_path):
    model, paradigm = random_model(), UShapedSplit(num_clients=2)
    paradigm.place(model.num_layers)
    paradigm.add_adapters(model, LoraRecipe(rank=4), seed=0)
    folders = learned(model, paradigm.adapters(), tmp_path / "adapter")
    together = {name: folders[name] for name in (SERVER, client_name(1))}
    found = merge_adapters(LLAVA, together, tmp_path / "merged")
    assert found.difference < 1e-4 * found.largest
    activate(model, list(together))
    merged = VisionLanguageModel.from_pretrained(str(tmp_path / "merged"), CLIP, DINO)
    batch = merged.preprocessor(random_samples(2))
    model.eval()
    torch.testing.assert_close(merged(batch).logits, model(batch).logits, rtol=1e-4, atol=1e-4)


def test_merged_whole_an_adapter_of_rounded_weights_differs_and_this_is_said(tmp_path):
    model = VisionLanguageModel.from_pretrained(str(random_backbone()), quantization="nf4")
    model.add_lora(rank=4)
    folders = learned(model, ["default"], tmp_path / "adapter")
    found = merge_adapters(LLAVA, folders, tmp_path / "merged", quantization="nf4")
    assert found.difference > 0.05 * found.largest


def test_the_inventory_counts_what_is_there_part_by_part():
    model = random_model()
    plain = {line.split()[0]: line.split()[1:] for line in inventory(model).splitlines()}
    assert {int(row[0].replace(",", "")) for row in list(plain.values())[1:]} == {0}
    model.add_lora(rank=4)
    table = {line.split()[0]: line.split()[1:] for line in inventory(model).splitlines()}
    learns = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert table["language_model"][0] == table["all"][0] == f"{learns:,}"
    for part in ("vision_tower", "multi_modal_projector", "lm_head", "text_encoder"):
        assert table[part] == plain[part] and table[part][0] == "0"
    assert table["language_model"][1] == plain["language_model"][1]
    rounded = VisionLanguageModel.from_pretrained(str(random_backbone()), quantization="nf4")
    assert inventory(rounded) == inventory(random_model())
