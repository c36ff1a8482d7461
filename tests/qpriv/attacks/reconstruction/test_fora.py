"""Controls that can fail: what the inverter must reach, and what it must not."""

import time

import pytest
import torch
from torch import Tensor

from qpriv.attacks.observation import Observation, Scenes
from qpriv.attacks.reconstruction.alignment import Alignment
from qpriv.attacks.reconstruction.fora import STRONG_STEPS, FeatureInversion, Fora, Training
from qpriv.attacks.reconstruction.inverter import Inverter, ridge, to_patches, weighted_error
from qpriv.attacks.reconstruction.scoring import Baselines, reconstruction_report
from qpriv.attacks.token_grid import TokenGrid, to_grid
from qpriv.errors import ConfigError
from qpriv.split import Direction, Kind, Transcript

GRID, PATCH, CUT = (4, 4), 4, 2
SIDE = GRID[0] * PATCH
CELLS = GRID[0] * GRID[1]


def drawn(count: int, seed: int) -> Scenes:
    """Return smooth random pictures with a textured square, the sensitive part."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 3, 3, generator=generator)
    pictures = torch.nn.functional.interpolate(coarse, (SIDE, SIDE), mode="bilinear")
    sensitive = torch.zeros(count, SIDE, SIDE, dtype=torch.bool)
    sensitive[:, 4:12, 4:12] = True
    pictures[:, :, 4:12, 4:12] = torch.rand(count, 3, 8, 8, generator=generator)
    return Scenes(
        pictures,
        sensitive,
        ((4, 4, 12, 12),) * count,
        tuple(range(count)),
        tuple(f"{seed}-{n}" for n in range(count)),
    )


def crossed(
    scenes: Scenes, kept: list[Tensor] | None = None, rows: Tensor | None = None
) -> Observation:
    """Return the transcript of a client that turns patches orthogonally and nothing else."""
    generator = torch.Generator().manual_seed(9)
    turn = torch.linalg.qr(torch.randn(48, 48, generator=generator))[0]
    tokens = to_patches(scenes.pictures, PATCH) @ turn
    tokens = tokens if rows is None else tokens[rows]
    kept = kept or [torch.arange(CELLS)] * len(scenes)
    transcript = Transcript()
    transcript.add(
        CUT,
        Kind.ACTIVATION,
        Direction.UP,
        [
            torch.cat([torch.zeros(2, 48), t[k], torch.ones(3, 48)])
            for t, k in zip(tokens, kept, strict=True)
        ],
        spans=[(2, 2 + len(k)) for k in kept],
    )
    return Observation(transcript, CUT, tuple(kept), GRID)


def attack(steps: int = 0, *, knows_positions: bool = True) -> FeatureInversion:
    training = Training(steps=steps, batch_size=32, width=48, depth=1)
    return FeatureInversion(
        client="supervised",
        knows_positions=knows_positions,
        training=training,
        patch_size=PATCH,
    )


def report(
    fora: FeatureInversion, seen: Observation, truth: Scenes, auxiliary: Scenes
) -> dict[str, float | None]:
    figures = reconstruction_report(
        fora.invert(seen), truth, truth.regions(seen.kept, seen.grid), Baselines.of(auxiliary)
    )
    return {figure.name: figure.value for figure in figures}


def test_identity_client_is_inverted_beyond_thirty_decibels() -> None:
    auxiliary, private = drawn(200, 0), drawn(40, 1)
    fora = attack()
    fora.fit(crossed(auxiliary), auxiliary)
    figures = report(fora, crossed(private), private, auxiliary)
    assert figures["psnr"] > 30 and figures["psnr_sensitive"] > 30
    assert figures["gain_over_mean_face"] > 15


def test_shuffled_transcripts_fall_to_the_floor() -> None:
    auxiliary, private = drawn(200, 0), drawn(40, 1)
    wrong = torch.randperm(200, generator=torch.Generator().manual_seed(2))
    fora = attack(steps=30)
    fora.fit(crossed(auxiliary, rows=wrong), auxiliary)
    figures = report(fora, crossed(private), private, auxiliary)
    assert abs(figures["psnr"] - figures["floor_mean_image"]) < 1.0
    assert figures["gain_over_mean_face"] < 0.5


def test_dropped_patches_are_guessed_and_kept_ones_known() -> None:
    generator = torch.Generator().manual_seed(3)
    kept = [torch.randperm(CELLS, generator=generator)[:8].sort().values for _ in range(200)]
    auxiliary, private = drawn(200, 0), drawn(40, 1)
    fora = attack(steps=60)
    fora.fit(crossed(auxiliary, kept), auxiliary)
    figures = report(fora, crossed(private, kept[:40]), private, auxiliary)
    assert figures["psnr_kept"] > figures["psnr_dropped"] + 3
    assert figures["psnr_dropped"] > figures["floor_mean_image_dropped"] - 0.5


def test_training_goes_on_from_where_it_was_and_is_repeatable() -> None:
    auxiliary = drawn(64, 0)
    seen = crossed(auxiliary)
    whole, again = attack(steps=6), attack(steps=6)
    whole.fit(seen, auxiliary)
    again.fit(seen, auxiliary)
    assert torch.equal(whole.invert(seen), again.invert(seen))
    carried = attack(steps=6)
    carried.load_state_dict(whole.state_dict(), seen)
    assert torch.equal(carried.invert(seen), whole.invert(seen))
    carried.fit(seen, auxiliary)
    assert carried.steps_done == 12 < STRONG_STEPS and carried.short
    assert not torch.equal(carried.invert(seen), whole.invert(seen))


def test_deadline_ends_training_and_is_told() -> None:
    auxiliary = drawn(32, 0)
    fora = attack(steps=50)
    fora.fit(crossed(auxiliary), auxiliary, deadline=time.monotonic() - 1)
    assert fora.steps_done == 0 and fora.stopped_early


def test_unknown_positions_cost_nothing_without_pruning_and_much_with_it() -> None:
    auxiliary, private = drawn(200, 0), drawn(40, 1)
    blind = attack(knows_positions=False)
    blind.fit(crossed(auxiliary), auxiliary)
    assert report(blind, crossed(private), private, auxiliary)["psnr"] > 30
    generator = torch.Generator().manual_seed(3)
    kept = [torch.randperm(CELLS, generator=generator)[:8].sort().values for _ in range(200)]
    figures = []
    for knows in (True, False):
        fora = attack(knows_positions=knows)
        fora.fit(crossed(auxiliary, kept), auxiliary)
        figures.append(report(fora, crossed(private, kept[:40]), private, auxiliary)["psnr"])
        assert fora.threat_model.settings()["knows_positions"] is knows
    assert figures[0] > figures[1] + 0.3


def test_substitute_is_aligned_to_what_crossed_and_needs_it() -> None:
    auxiliary, private = drawn(200, 0), drawn(200, 1)
    public = crossed(auxiliary)
    seen = crossed(private)
    moved = Transcript()
    rows = [row + 0.7 for row in seen.transcript.rows(CUT)]  # what the adapter does to tokens
    moved.add(CUT, Kind.ACTIVATION, Direction.UP, rows, spans=seen.transcript.select(CUT)[0].spans)
    target = Observation(moved, CUT, seen.kept, GRID)
    figures = []
    for steps in (0, 120):
        fora = FeatureInversion(
            client="substitute",
            training=Training(steps=0, width=48, depth=1),
            alignment=Alignment(steps=steps, learning_rate=1e-2, batch_size=32),
            patch_size=PATCH,
        )
        fora.fit(public, auxiliary, private=target)
        figures.append(report(fora, target, private, auxiliary)["psnr"])
    assert figures[1] > figures[0] + 3
    with pytest.raises(ValueError, match="private"):
        fora.fit(public, auxiliary)


def test_ragged_tokens_land_where_a_loop_puts_them() -> None:
    generator = torch.Generator().manual_seed(5)
    kept = [torch.tensor([1, 7, 15]), torch.tensor([0]), torch.arange(CELLS)]
    rows = [torch.randn(len(k), 6, generator=generator) for k in kept]
    grid = to_grid(rows, kept, CELLS)
    spread = to_grid(rows, None, CELLS)
    for n, places in enumerate(kept):
        for cell in range(CELLS):
            inside = cell in places.tolist()
            assert bool(grid.present[n, cell]) == inside
            expected = rows[n][places.tolist().index(cell)] if inside else torch.zeros(6)
            assert torch.equal(grid.tokens[n, cell], expected)
        assert torch.equal(spread.tokens[n][spread.present[n]], rows[n])
    assert spread.present[0].nonzero().flatten().tolist() == [2, 8, 13]


def test_absent_tokens_cannot_be_read() -> None:
    inverter = Inverter(6, GRID, PATCH, width=48, depth=1).eval()
    tokens, present = torch.randn(1, CELLS, 6), torch.ones(1, CELLS, dtype=torch.bool)
    present[0, 3] = False
    changed = tokens.clone()
    changed[0, 3] = 100.0
    one, two = (inverter(TokenGrid(t, present)) for t in (tokens, changed))
    assert torch.equal(one, two)


def test_ridge_solves_its_normal_equations() -> None:
    generator = torch.Generator().manual_seed(6)
    x, y = torch.randn(80, 5, generator=generator), torch.randn(80, 3, generator=generator)
    weight, bias = ridge(x, y, 0.1)
    centred, level = x - x.mean(0), y - y.mean(0)
    strength = 0.1 * (centred.T @ centred).diagonal().mean()
    residual = centred.T @ (centred @ weight.T - level) + strength * weight.T
    assert residual.abs().max() < 1e-3
    assert torch.allclose(bias, y.mean(0) - weight @ x.mean(0), atol=1e-5)


def test_patches_are_cut_and_put_together_again() -> None:
    pictures = drawn(2, 0).pictures
    inverter = Inverter(6, GRID, PATCH, width=48, depth=1)
    assert torch.equal(inverter._assemble(to_patches(pictures, PATCH)), pictures)


def test_weights_count_errors_where_they_are() -> None:
    truth = torch.zeros(1, 3, 2, 2)
    restored = truth.clone()
    restored[..., 0, 0] = 1.0
    weights = torch.tensor([[[3.0, 1.0], [1.0, 1.0]]])
    assert weighted_error(restored, truth, weights).item() == pytest.approx(3 / 6)


@pytest.mark.parametrize("wrong", [{"steps": -1}, {"batch_size": 0}, {"learning_rate": 0.0}])
def test_impossible_training_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Training(**wrong)  # type: ignore[arg-type]


def test_the_former_name_warns_and_says_which_attack_it_is():
    with pytest.warns(DeprecationWarning, match=r"FeatureInversion\(client='supervised'\)"):
        former = Fora(patch_size=PATCH)
    assert isinstance(former, FeatureInversion) and former.client == "supervised"
    with pytest.raises(TypeError, match="client"):
        FeatureInversion(patch_size=PATCH)
