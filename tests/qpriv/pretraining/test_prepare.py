import pytest
import torch
from safetensors.torch import load_file

from qpriv.errors import ConfigError
from qpriv.pretraining import prepare_tiny

TRIAL = 0.001
"""Two steps a stage on 64 scenes."""


def weights(folder):
    return {
        part: load_file(folder / part / "model.safetensors") for part in ("clip", "dino", "llava")
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    prepare_tiny(folder, seed=3, effort=TRIAL)
    return folder


def test_every_stage_leaves_a_folder_and_nothing_else(prepared):
    assert {path.name for path in prepared.iterdir()} == {"clip", "dino", "llava"}
    assert all(
        w.dtype == torch.float16 for part in weights(prepared).values() for w in part.values()
    )


def test_llava_sees_through_the_tower_of_clip(prepared):
    parts = weights(prepared)
    tower = {k: v for k, v in parts["llava"].items() if "vision_tower" in k}
    own = {k: v for k, v in parts["clip"].items() if k.startswith("vision_model.")}
    assert len(tower) == len(own)
    for name, value in own.items():
        (twin,) = [v for k, v in tower.items() if k.endswith(name.removeprefix("vision_model."))]
        assert torch.equal(twin, value)


@pytest.mark.slow
def test_a_stopped_preparation_goes_on_and_ends_the_same(prepared, tmp_path, monkeypatch):
    from qpriv.pretraining import llava_stage

    finished = llava_stage.pretrain

    def stop(*args, **options):
        finished(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(llava_stage, "pretrain", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare_tiny(tmp_path, seed=3, effort=TRIAL)
    assert (tmp_path / "llava.ckpt").exists()
    assert not (tmp_path / "llava").exists()
    monkeypatch.setattr(llava_stage, "pretrain", finished)
    prepare_tiny(tmp_path, seed=3, effort=TRIAL)
    for part, values in weights(prepared).items():
        resumed = weights(tmp_path)[part]
        assert all(torch.equal(resumed[name], value) for name, value in values.items())


def test_impossible_effort(tmp_path):
    with pytest.raises(ConfigError, match="effort is 0"):
        prepare_tiny(tmp_path, effort=0)
