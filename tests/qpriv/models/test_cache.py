import os

import pytest
import torch

from cli.features import readable
from cli.main import main
from qpriv.errors import DataError
from qpriv.models.cache import CHUNK, FeatureCache, TensorStore, cached, stored_features
from qpriv.models.llava.vision_language import VisionLanguageModel
from tests.tiny_models import random_backbone, random_samples

FIELDS = ("patches", "pooled", "question", "sensitivity")


@pytest.fixture(scope="module")
def model():
    return VisionLanguageModel.from_pretrained(str(random_backbone()))


def test_cached_features_are_the_encoders_own(model, tmp_path):
    batch = model.preprocessor(random_samples(5))
    plain = model.encode(batch)
    for features in (FeatureCache(model, tmp_path)(batch), FeatureCache(model, tmp_path)(batch)):
        assert features.grid == plain.grid
        assert features.sensitivity_grid == plain.sensitivity_grid
        for name in FIELDS:
            torch.testing.assert_close(getattr(features, name), getattr(plain, name))


def test_a_feature_does_not_depend_on_its_neighbours(model, tmp_path):
    samples = random_samples(CHUNK + 3)
    whole, parts = FeatureCache(model, tmp_path / "a"), FeatureCache(model, tmp_path / "b")
    for sample in reversed(samples):
        parts(model.preprocessor([sample]))
    batch = model.preprocessor(samples)
    first, second = whole(batch), parts(batch)
    for name in FIELDS:
        assert torch.equal(getattr(first, name), getattr(second, name))


def test_no_image_is_encoded_twice(model, tmp_path, monkeypatch):
    batch = model.preprocessor(random_samples(4) * 2)
    cache = FeatureCache(model, tmp_path)
    fresh = cache(batch)
    for name in ("encode_images", "encode_questions", "encode_sensitivity"):
        monkeypatch.setattr(model, name, None)
    again, reopened = cache(batch), FeatureCache(model, tmp_path)(batch)
    for name in FIELDS:
        assert torch.equal(getattr(again, name), getattr(fresh, name))
        assert torch.equal(getattr(reopened, name), getattr(fresh, name))


def test_other_weights_are_another_cache(model, tmp_path):
    FeatureCache(model, tmp_path)(model.preprocessor(random_samples(1)))
    other = VisionLanguageModel.from_pretrained(str(random_backbone()))
    with torch.no_grad():
        next(other.vision_tower.parameters()).add_(1)
    assert len(FeatureCache(other, tmp_path).stores["image"]) == 0
    assert len(FeatureCache(model, tmp_path).stores["image"]) == 1


def test_store_takes_in_what_others_wrote_and_leaves_no_draft(tmp_path):
    mine, other = TensorStore(tmp_path, ("x",)), TensorStore(tmp_path, ("x",))
    other.write(["a", "b"], {"x": torch.tensor([[1.0], [2.0]])})
    assert "a" not in mine
    mine.refresh()
    assert mine.read(["b", "a", "b"])["x"].flatten().tolist() == [2, 1, 2]
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]


def test_a_broken_shard_is_named(tmp_path):
    (tmp_path / "torn.safetensors").write_bytes(b"\x08\x00")
    with pytest.raises(DataError, match=r"torn\.safetensors"):
        TensorStore(tmp_path, ("x",))


def test_cached_computes_each_distinct_input_once(tmp_path):
    asked = []

    def compute(rows):
        asked.append(rows.tolist())
        return {"x": rows.float() * 10}

    inputs = [torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([1.0])]
    found = cached([TensorStore(tmp_path, ("x",))], inputs, compute, chunk=2)
    assert asked == [[0, 1]]
    assert found["x"].tolist() == [0, 10, 0]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("before", [None, 0o755])
def test_only_the_owner_can_read_the_cache(model, tmp_path, before):
    folder = tmp_path / "runs" / ".features"
    if before is not None:
        folder.mkdir(parents=True)
        folder.chmod(before)
    FeatureCache(model, folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_command_shows_the_size_and_clears_features_alone(model, tmp_path, capsys):
    FeatureCache(model, tmp_path)(model.preprocessor(random_samples(2)))
    kept = tmp_path / "notes.txt"
    kept.write_text("mine")
    size = sum(path.stat().st_size for path in stored_features(tmp_path))
    main(["features", "--folder", str(tmp_path)])
    assert f"3 files, {readable(size)}" in capsys.readouterr().out
    main(["features", "--folder", str(tmp_path), "--clear"])
    assert "removed 3 files" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [kept]
    assert len(FeatureCache(model, tmp_path).stores["image"]) == 0
