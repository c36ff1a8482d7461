"""What of the sensitive part crosses, against a plain loop over patches and boxes."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from callbacks import SensitivityProbe
from callbacks.probes.sensitivity import _Tally
from qpriv.pruning.decision import PruningDecision

from ..victims import TinyData, TinyVictim

BOXES = [
    ((32, 32, 56, 56),),
    ((1, 1, 9, 9), (40, 3, 63, 30)),
    (),
    ((0, 0, 64, 64),),
]
"""Boxes that fit no patch, several on a picture, none, and all of it."""


class Boxed(TinyData):
    """Targets with boxes of all kinds."""

    def targets(self) -> list:
        samples = super().targets()
        return [
            replace(sample, sensitive_boxes=BOXES[number % len(BOXES)])
            for number, sample in enumerate(samples)
        ]


def plain_figures(victim: TinyVictim, data: Boxed) -> dict[str, tuple[float, int]]:
    """Return each measure by a loop, with the number of images it rests on."""
    kept_half, touching, area, faces = [], [], [], []
    owners: dict[str, set[str]] = {"boxes": set(), "half": set()}
    for sample in data.targets():
        batch = victim.preprocessor([sample])
        (kept,) = victim.policy.decide(victim.encode(batch), [sample]).kept
        inside = set(kept.tolist())
        size = sample.image.load().size
        if not sample.sensitive_boxes:
            continue
        cover = victim.preprocessor.patch_coverage(sample.sensitive_boxes, size).tolist()
        half = {n for n, share in enumerate(cover) if share >= 0.5}
        touched = {n for n, share in enumerate(cover) if share > 0}
        owners["boxes"].add(sample.group_id)
        if half:
            owners["half"].add(sample.group_id)
            kept_half.append(len(half & inside) / len(half))
        touching.append(len(touched & inside) / len(touched))
        area.append(sum(cover[n] for n in inside) / sum(cover))
        for box in sample.sensitive_boxes:
            own = victim.preprocessor.patch_coverage([box], size).tolist()
            faces.append(any(own[n] > 0 for n in inside))
    found = {
        "sensitive_tokens_kept": (kept_half, "half"),
        "sensitive_tokens_touching": (touching, "boxes"),
        "sensitive_area_visible": (area, "boxes"),
        "faces_touched": (faces, "boxes"),
    }
    return {name: (sum(v) / len(v), len(owners[of])) for name, (v, of) in found.items()}


def test_measures_equal_a_loop_over_patches_and_boxes(tmp_path: Path) -> None:
    victim, data = TinyVictim(), Boxed()
    results = SensitivityProbe(on_error="stop").run_once(victim, data, tmp_path, 0)
    found = {result.name: result for result in results}
    for name, (value, n) in plain_figures(victim, data).items():
        assert found[name].value == pytest.approx(value, abs=1e-6), name
        assert found[name].n == n, name
        low, high = found[name].ci
        assert low <= found[name].value <= high
    # half of the patches go, and yet nearly every face is seen in part
    assert found["faces_touched"].value > found["sensitive_tokens_touching"].value


def test_pictures_without_a_box_have_no_figures(tmp_path: Path) -> None:
    class Bare(TinyData):
        def targets(self) -> list:
            return [replace(sample, sensitive_boxes=()) for sample in super().targets()]

    results = SensitivityProbe(on_error="stop").run_once(TinyVictim(), Bare(), tmp_path, 0)
    found = {result.name: result for result in results}
    for name in ("sensitive_tokens_kept", "sensitive_area_visible", "faces_touched"):
        assert (found[name].value, found[name].status) == (None, "not applicable")
    assert math.isfinite(found["kept_tokens"].value)


def crossed(**given: object) -> dict[str, list[float]]:
    """Return the measures of one picture of four patches, whose first one holds half a face."""
    tally = _Tally()
    decision = PruningDecision((torch.tensor([2, 3]),), 4, torch.tensor([0.5]), **given)
    face = torch.tensor([[0.5, 0.1, 0.0, 0.0]])
    tally.crossed(decision, [(face[0], face)])
    return {
        name: torch.cat(getattr(tally, name)).tolist()
        for name in ("survivors", "mass", "touching", "area", "faces")
    }


def test_what_is_merged_into_a_token_crosses() -> None:
    tokens = (torch.zeros(2, 3),)
    mixing = (torch.tensor([[0.25, 0.0, 0.75, 0.0], [0.0, 0.0, 0.0, 1.0]]),)
    assert crossed() == {
        "survivors": [0.0], "mass": [0.0], "touching": [0.0], "area": [0.0], "faces": [0.0]
    }  # fmt: skip
    merged = crossed(merged=tokens, mixing=mixing)
    assert merged["mass"] == [0.125] and merged["touching"] == [0.5] and merged["faces"] == [1.0]
    assert merged["area"] == [pytest.approx(5 / 6)]


def test_of_a_merge_that_says_nothing_nothing_is_claimed() -> None:
    unknown = crossed(merged=(torch.zeros(2, 3),))
    assert all(math.isnan(unknown[name][0]) for name in ("mass", "touching", "area", "faces"))
