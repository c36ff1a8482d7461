"""Whose face crossed a linear tower, where the answer is known."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from callbacks.probes.probe import Visit
from callbacks.probes.recognition import Recognition
from qpriv.attacks.observation import Scenes, scenes
from qpriv.attacks.reconstruction.fora import FeatureInversion, Training
from qpriv.attacks.reconstruction.inverter import to_patches
from qpriv.attacks.reconstruction.recognition import reading
from qpriv.attacks.reconstruction.recognition.places import Placer, in_order
from qpriv.attacks.reconstruction.recognition.portraits import (
    Portraits,
    Tones,
    Warp,
    fitted,
    paste,
)
from qpriv.attacks.reconstruction.recognition.reading import Crossed, Moments
from qpriv.attacks.reconstruction.recognition.recogniser import Recogniser, found_first
from qpriv.attacks.reconstruction.recognition.report import (
    floors_by_knowledge,
    recognition_report,
    whole_crop_report,
)
from qpriv.attacks.reconstruction.scoring import Baselines
from qpriv.attacks.token_grid import TokenGrid
from qpriv.datasets.face_scenes import FaceScenes, face_gallery
from qpriv.datasets.sample import Box
from qpriv.metrics.intervals import rate_interval
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.pruning.baselines import RandomPruning
from qpriv.result import Result
from qpriv.split import Channel

GRID, PATCH = (8, 8), 4
SIDE, CELLS = GRID[0] * PATCH, GRID[0] * GRID[1]


def people(count: int, seed: int, first: int = 0) -> Portraits:
    """Return grey faces that share a light, each with features of its own."""
    generator = torch.Generator().manual_seed(seed)
    coarse = 0.5 + 0.12 * torch.randn(count, 1, 5, 5, generator=generator)
    faces = interpolate(coarse, (15, 15), mode="bicubic").clamp(0.05, 0.8)
    usual = torch.linspace(-0.1, 0.1, 15)[:, None]
    faces = (faces + usual).clamp(0, 1).repeat(1, 3, 1, 1)
    return Portraits(tuple(faces), tuple(range(first, first + count)))


def scenes_of(portraits: Portraits, count: int, seed: int) -> Scenes:
    """Return bright scenes with one face each, in a tone of its own."""
    generator = torch.Generator().manual_seed(seed)
    coarse = 0.8 + 0.1 * torch.randn(count, 3, 2, 2, generator=generator)
    pictures = interpolate(coarse, (SIDE, SIDE), mode="bilinear").clamp(0, 1)
    sensitive = torch.zeros(count, SIDE, SIDE, dtype=torch.bool)
    boxes: list[Box] = []
    for row in range(count):
        size = int(torch.randint(12, 17, (1,), generator=generator))
        left, top = torch.randint(SIDE - size + 1, (2,), generator=generator).tolist()
        tone = torch.tensor([1.0, 0.9, 0.8]) * (1 + 0.1 * torch.randn(1, generator=generator))
        face = fitted(portraits.faces[row % len(portraits)], size, size)[0]
        pictures[row, :, top : top + size, left : left + size] = face * tone[:, None, None]
        sensitive[row, top : top + size, left : left + size] = True
        boxes.append((left, top, left + size, top + size))
    owners = tuple(portraits.people[row % len(portraits)] for row in range(count))
    groups = tuple(f"{seed}-{row}" for row in range(count))
    return Scenes(pictures.clamp(0, 1), sensitive, tuple(boxes), owners, groups)


def tower(truth: Scenes, *, hides: bool, noise: float = 0.05) -> TokenGrid:
    """Return tokens of a linear tower; a policy that hides drops what a face covers by half."""
    generator = torch.Generator().manual_seed(9)
    turn = torch.linalg.qr(torch.randn(48, 48, generator=generator))[0]
    place = torch.randn(CELLS, 8, generator=generator)
    patches = to_patches(truth.pictures, PATCH)
    tokens = torch.cat([patches @ turn, place.expand(len(truth), -1, -1)], dim=2)
    tokens = tokens + noise * torch.randn(tokens.shape, generator=generator)
    covered = to_patches(truth.sensitive[:, None].float(), PATCH).mean(dim=2)
    present = covered < 0.5 if hides else torch.ones_like(covered, dtype=torch.bool)
    present = present & (torch.rand(present.shape, generator=generator) < (0.9 if hides else 2))
    return TokenGrid(tokens * present.unsqueeze(-1), present)


@dataclass
class World:
    """An attacker with people of its own, and private scenes of others."""

    recogniser: Recogniser
    auxiliary: Crossed
    private: Crossed

    @property
    def restored(self) -> Tensor:
        """Pictures in which an inverter invented the dropped pixels: somebody else's."""
        read = self.recogniser.reader.read(self.private.tokens, GRID)
        invented = self.private.scenes.pictures.roll(1, 0)
        return torch.where(read.crossed[:, None], read.pictures, invented)

    def report(self, **rates: float) -> dict[str, Result]:
        crossed = self.recogniser.reader.read(self.private.tokens, GRID).crossed
        report = recognition_report(
            self.recogniser, self.private, self.restored, crossed, rates, self.recogniser
        )
        return {result.name: result for result in report}


def world(*, hides: bool, noise: float = 0.05) -> World:
    gallery = people(60, 0)
    strangers = scenes_of(people(40, 1, 100), 240, 2)
    pasted = scenes_of(gallery, 120, 3)
    private = scenes_of(gallery, 60, 4)
    known = Crossed(tower(strangers, hides=hides, noise=noise), strangers)
    own = Crossed(tower(pasted, hides=hides, noise=noise), pasted)
    recogniser = Recogniser.fit(gallery, known, own, PATCH)
    return World(recogniser, known, Crossed(tower(private, hides=hides, noise=noise), private))


@pytest.fixture(scope="module")
def hidden() -> World:
    return world(hides=True)


@pytest.fixture(scope="module")
def found(hidden: World) -> dict[str, Result]:
    return hidden.report()


def test_a_linear_tower_is_read_exactly_and_everybody_found() -> None:
    plain = world(hides=False, noise=0.0)
    read = plain.recogniser.reader.read(plain.private.tokens, GRID)
    assert (read.pictures - plain.private.scenes.pictures).abs().max() < 0.01
    found = plain.report()
    for matcher in ("crossed_pixels", "crossed_tokens", "whole_crop"):
        assert found[f"reid_top1_{matcher}"].value == 1.0
    whole = found["reid_top1"]
    assert whole.ci is not None and whole.ci[0] < 0.97 < whole.ci[1]
    by_person = found["reid_top1_by_person"]
    assert by_person.n == 60 and by_person.ci is not None and by_person.ci[0] < 1.0


def test_what_was_invented_is_not_looked_at(found: dict[str, Result]) -> None:
    whole, pixels = found["reid_top1_whole_crop"].value, found["reid_top1_crossed_pixels"].value
    tokens, unknown = found["reid_top1_crossed_tokens"].value, found["reid_top1_box_unknown"].value
    assert None not in (whole, pixels, tokens, unknown)
    assert pixels > 2 * whole and tokens > 2 * whole  # type: ignore[operator]
    assert unknown > 0.1  # type: ignore[operator]


def test_another_persons_transcript_is_chance(found: dict[str, Result]) -> None:
    control = found["reid_top1_control"]
    assert control.value is not None and control.value < 0.06
    assert control.ci is not None and control.ci[0] <= 1 / 60 <= control.ci[1]


def test_the_headline_is_chosen_on_auxiliary_people(hidden: World) -> None:
    best = hidden.report(crossed_tokens=0.2, whole_crop=0.9, crossed_pixels=0.3)
    headline = best["reid_top1"]
    assert headline.attack["matcher"] == "whole_crop"
    assert headline.attack["auxiliary_top1_whole_crop"] == 0.9
    assert headline.value == best["reid_top1_whole_crop"].value
    rates = found_first(hidden.recogniser, hidden.private, hidden.restored)
    assert rates["crossed_tokens"] == best["reid_top1_crossed_tokens"].value


def test_parts_by_visible_share_add_up_and_nothing_is_found_in_nothing(
    hidden: World, found: dict[str, Result]
) -> None:
    parts = [found[f"reid_top1_{part}"] for part in ("glimpsed", "visible")]
    gone = found["reid_top1_gone"]
    assert sum(part.n for part in parts) + gone.n == found["reid_top1"].n == 60
    hits = sum((part.value or 0) * part.n for part in (*parts, gone))
    assert hits == pytest.approx((found["reid_top1"].value or 0) * 60)
    private = hidden.private.scenes
    touched = to_patches(private.sensitive[:, None].float(), PATCH).amax(dim=2) > 0
    present = hidden.private.tokens.present & ~touched
    tokens = TokenGrid(hidden.private.tokens.tokens * present.unsqueeze(-1), present)
    blind = World(hidden.recogniser, hidden.auxiliary, Crossed(tokens, private)).report()
    assert blind["reid_top1"].value == 0.0 and blind["reid_top1_gone"].n == 60
    assert blind["reid_top1"].ci is not None and blind["reid_top1"].ci[1] > 0
    assert blind["reid_top1_visible"].status == "not applicable"


def test_the_mask_tells_where_the_face_is(hidden: World) -> None:
    guessed = hidden.recogniser.locator.guess(hidden.private.tokens.present)
    overlaps = [overlap(a, b) for a, b in zip(guessed, hidden.private.scenes.faces, strict=True)]
    others = [overlap(a, b) for a, b in zip(guessed[1:], hidden.private.scenes.faces, strict=False)]
    assert torch.tensor(overlaps).mean() > 0.5 > 0.3 > torch.tensor(others).mean()


def overlap(one: Box, other: Box | None) -> float:
    assert other is not None
    width = max(0, min(one[2], other[2]) - max(one[0], other[0]))
    height = max(0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return width * height / (sum(areas) - width * height)


def test_a_floor_that_knows_more_is_higher(hidden: World) -> None:
    baselines = Baselines.of(hidden.auxiliary.scenes)
    report = floors_by_knowledge(
        hidden.recogniser, hidden.private, hidden.auxiliary.scenes, baselines
    )
    values = [result.value for result in report]
    assert [result.name for result in report] == [
        "floor_located_mean_face",
        "floor_eigenfaces",
        "floor_gallery",
    ]
    assert None not in values and sorted(values, key=float) == values  # type: ignore[arg-type]


def test_tokens_tell_their_places() -> None:
    drawn = scenes_of(people(10, 1), 60, 5)
    grid = tower(drawn, hides=True)
    rows = [tokens[present] for tokens, present in zip(grid.tokens, grid.present, strict=True)]
    placed = Placer.fit(grid).place(rows)
    assert (placed.present == grid.present).float().mean() > 0.98
    best = max(
        torch.combinations(torch.arange(6), 3),
        key=lambda cells: float(SCORES[torch.arange(3), cells].sum()),
    )
    assert in_order(SCORES).tolist() == best.tolist()


SCORES = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))


def test_tones_are_learned_from_people_seen_twice() -> None:
    tones = Tones.between(people(60, 0), scenes_of(people(60, 7), 600, 8))
    assert torch.allclose(tones.mean, torch.tensor([1.0, 0.9, 0.8]), atol=0.05)
    spread = tones.covariance.diagonal().sqrt() / tones.mean
    assert ((spread > 0.07) & (spread < 0.14)).all()


def test_a_warped_gallery_is_another_photograph(hidden: World) -> None:
    same, other = Warp(strength=0)(people(60, 0)), Warp()(people(60, 0))
    for ours, stored, warped in zip(same.faces, people(60, 0).faces, other.faces, strict=True):
        assert torch.allclose(ours, stored, atol=1e-4)
        assert 0.01 < (warped - stored).abs().mean() < 0.25


@pytest.mark.parametrize("faces", [range(10), range(0)])
def test_a_small_gallery_or_no_face_is_refused_a_figure(
    hidden: World, faces: Sequence[int]
) -> None:
    report = whole_crop_report(
        hidden.recogniser.portraits[: len(faces)], hidden.private.scenes, hidden.restored
    )
    assert all(result.status == "not applicable" and result.note for result in report)


def test_of_merged_tokens_nothing_is_said_by_what_is_visible(hidden: World) -> None:
    private = hidden.private.scenes
    report = whole_crop_report(hidden.recogniser.portraits, private, hidden.restored)
    names = {"reid_top1", "reid_top5", "reid_top1_by_person", "reid_top1_whole_crop"}
    assert {result.name for result in report} == names and all(result.ci for result in report)


def test_one_person_alone_has_no_control_and_a_picture_of_no_numbers_finds_nobody(
    hidden: World,
) -> None:
    row = slice(0, 1)
    alone = Crossed(hidden.private.tokens[row], hidden.private.scenes[row])
    nothing = torch.full_like(hidden.restored[row], torch.nan)
    crossed = torch.ones(1, SIDE, SIDE, dtype=torch.bool)
    report = recognition_report(hidden.recogniser, alone, nothing, crossed, {"whole_crop": 1.0})
    found = {result.name: result for result in report}
    assert found["reid_top1_control"].status == "not applicable"
    assert found["reid_top1"].value == 0.0


def test_pasted_scenes_of_another_seed_are_other_images() -> None:
    hosts, gallery = FaceScenes("train", 4, 1, "scenes", 1).samples, people(3, 0)
    tones = Tones(torch.ones(3), 0.01 * torch.eye(3))
    one, other = (paste(hosts, gallery, tones, 1, seed) for seed in (1, 2))
    assert len({sample.image_key for sample in (*one, *other)}) == 6


def test_moments_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, targets, weights = torch.randn(50, 4), torch.randn(50, 3), torch.rand(50)
    whole = Moments.of(inputs, targets, weights).ridge(1e-2)
    monkeypatch.setattr(reading, "CHUNK", 7)
    for one, other in zip(Moments.of(inputs, targets, weights).ridge(1e-2), whole, strict=True):
        torch.testing.assert_close(one, other)


def test_a_rate_of_one_is_not_certain() -> None:
    assert rate_interval([1.0] * 6, "aabbcc") == pytest.approx((0.4385, 1.0), abs=1e-3)
    low, high = rate_interval([1, 0, 1, 0], "abcd") or (0.5, 0.5)
    assert low < 0.5 < high


@pytest.mark.slow
def test_the_embedded_model_gives_away_whose_face_crossed(tmp_path: Path) -> None:
    model = VisionLanguageModel.from_pretrained("tiny")
    victim = SimpleNamespace(
        model=model, policy=RandomPruning(0.7), channel=Channel((4,)), encode=model.encode
    )
    data = SimpleNamespace(gallery=face_gallery)
    visit = Visit(victim, data, 0, tmp_path, tmp_path)  # type: ignore[arg-type]
    known = FaceScenes("train", 200, 1, "scenes", 1).samples
    private = FaceScenes("members", 60, 1, "scenes", 1).samples
    sent, seen = visit.observe(known, 4, draw=1), visit.observe(private, 4)
    truth = scenes(model, known)
    fora = FeatureInversion(client="supervised", training=Training(steps=0))
    fora.fit(sent, truth)
    found, tried = {}, {}
    for knows in (True, False):
        recognition = Recognition(visit, 4, fora, nullcontext, known, sent, truth, 8, knows)
        report = recognition.report(seen, scenes(model, private), fora.invert(seen))
        found[knows] = {result.name: result.value for result in report}
        tried[knows] = report[0].attack["auxiliary_top1_crossed_tokens"]
    told, blind = found[True], found[False]
    assert told["reid_top1"] > 0.7 > 2 * told["reid_top1_whole_crop"]
    assert told["reid_top1"] == max(
        told[f"reid_top1_{m}"] for m in ("crossed_tokens", "crossed_pixels", "whole_crop")
    )
    assert told["reid_top1"] > told["reid_top1_warped"] > 0.1 > told["reid_top1_control"]
    assert blind["reid_top1"] > 0.05  # tokens tell some of their places
    assert tried[False] < 0.5 < tried[True]  # matchers are tried on tokens as badly placed
    assert told["floor_gallery"] > told["floor_eigenfaces"] > told["floor_located_mean_face"]
