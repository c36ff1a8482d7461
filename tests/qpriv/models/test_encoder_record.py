"""Which encoders a backbone has, read off files."""

from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file, save_file

from qpriv.models.encoder_record import read_encoders
from qpriv.models.registry import resolve_backbone


def test_a_vit_without_a_class_token_has_a_width_too(tmp_path: Path) -> None:
    tiny = resolve_backbone("tiny")
    weights = load_file(Path(tiny.sensitivity_encoder) / "model.safetensors")
    del weights["cls_token"]
    save_file(weights, tmp_path / "model.safetensors")
    record, sizes = read_encoders(replace(tiny, sensitivity_encoder=str(tmp_path)))
    whole, expected = read_encoders(tiny)
    assert sizes == expected
    assert record.unlike(whole) == ["sensitivity"]
