"""Two runs side by side: figures, differences, settings, and what makes them incomparable."""

import json

import pytest
import yaml

from cli.main import main
from qpriv.errors import DataError
from qpriv.reporting.compare import compare_runs
from qpriv.result import Result, append_results


def write_run(folder, accuracy, *, seed=0, n=200, **settings):
    """Write a run folder with two epochs of accuracy, and a figure of its own."""
    append_results(
        folder / "results.jsonl",
        [
            Result(name="accuracy", value=0.1, n=n, seed=seed, epoch=0, dataset="D/val"),
            Result(
                name="accuracy", value=accuracy, n=n, ci=(accuracy - 0.03, accuracy + 0.04),
                seed=seed, epoch=1, dataset="D/val",
            ),
            Result(name="bytes_up", value=5e6, n=n, unit="bytes", seed=seed, epoch=1),
        ],
    )  # fmt: skip
    config = {"model": {"init_args": settings}, "trainer": {"default_root_dir": str(folder)}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.fixture
def runs(tmp_path):
    return write_run(tmp_path / "a", 0.8, noise=0), write_run(tmp_path / "b", 0.7, noise=1)


def test_the_last_figures_are_subtracted_with_their_interval(runs):
    found = compare_runs(*runs)
    accuracy, sent = found.figures
    assert (accuracy.one.value, accuracy.other.value) == (0.8, 0.7)
    assert accuracy.difference.value == pytest.approx(-0.1)
    low, high = accuracy.difference.interval
    assert (low, high) == pytest.approx((-0.15, -0.05))  # root of .03^2 + .04^2 on either side
    assert sent.difference.value == 0
    assert found.settings == {"model.init_args.noise": ("0", "1")}
    assert found.warnings == ()


def test_what_makes_runs_incomparable_is_said(runs, tmp_path):
    other = write_run(tmp_path / "c", 0.8, seed=1, n=100)
    append_results(other / "results.jsonl", [Result(name="extra", value=1.0, n=1, epoch=5)])
    (other / "results.jsonl").open("a").write('{"half a line')
    found = compare_runs(runs[0], other)
    told = " ".join(found.warnings)
    for words in ("seeds 0 and 1", "different numbers of images", "half a line"):
        assert words in told
    extra = found.figures[-1]
    assert extra.one is None and extra.difference is None and "not measured" in str(found)


def test_the_command_prints_text_or_json(runs, capsys):
    main(["compare", *map(str, runs)])
    text = capsys.readouterr().out
    assert "accuracy (D/val)" in text and "-0.100 [-0.150, -0.050]" in text
    assert "model.init_args.noise: 0 | 1" in text
    main(["compare", *map(str, runs), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["figures"][0]["difference"]["value"] == pytest.approx(-0.1)


def test_a_missing_folder_is_one_error(runs, tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        compare_runs(runs[0], tmp_path / "nowhere")


def attacked(folder, *results):
    """Write a run folder with figures of attacks."""
    folder.mkdir()
    append_results(folder / "results.jsonl", results)
    return folder


def stolen(value, **given):
    return Result(
        name="attack/supervised_inversion/psnr", value=value, n=9, seed=0, epoch=1, **given
    )


def test_two_settings_are_two_figures_each_held_against_its_like(tmp_path):
    sides = [
        attacked(tmp_path / name, *(stolen(v, setting={"steps": s}) for s, v in values.items()))
        for name, values in (("a", {60: 1.0, 600: 3.0}), ("b", {60: 2.0, 600: 5.0}))
    ]
    found = compare_runs(*sides)
    assert [row.difference.value for row in found.figures] == [1.0, 2.0]
    assert "attack/supervised_inversion/psnr (steps 60)" in str(found) and "steps 600" in str(found)


def test_another_setting_in_the_other_run_is_compared_and_said(tmp_path):
    one, other = (
        attacked(tmp_path / name, stolen(v, setting={"steps": s}))
        for name, s, v in (("a", 60, 1.0), ("b", 600, 3.0))
    )
    found = compare_runs(one, other)
    assert [row.difference.value for row in found.figures] == [2.0]
    assert "steps 60 | steps 600" in str(found)
    assert "some attacks had other settings" in found.warnings


def test_what_two_runs_are_compared_for_is_no_part_of_the_pairing(tmp_path):
    sides = []
    for value, defence, channel, policy in (
        (3.0, "none", "up@4", "off"),
        (1.0, "noise(0.1)", "up@2/int8", "dtp"),
    ):
        under = {"channel": channel, "defence": defence, "policy": policy, "paradigm": "split"}
        answered = Result(name="accuracy", value=value, n=9, **under)
        sides.append(attacked(tmp_path / defence, stolen(value, **under), answered))
    found = compare_runs(*sides)
    assert [(row.name, row.difference.value) for row in found.figures] == [
        ("attack/supervised_inversion/psnr", -2.0),
        ("accuracy", -2.0),
    ]


def test_what_would_cross_is_held_against_what_does_and_said(tmp_path):
    kept = Result(name="accuracy", value=0.5, n=9)
    one = attacked(tmp_path / "a", kept, stolen(3.0, channel="hypothetical:up@4"))
    other = attacked(tmp_path / "b", kept, stolen(2.0, channel="up@4"))
    (row,) = [row for row in compare_runs(one, other).figures if row.name != "accuracy"]
    assert row.difference.value == -1.0 and "hypothetical:up@4" in row.told


def test_figures_under_several_defences_of_one_run_are_compared_each_with_its_like(tmp_path):
    sides = [
        attacked(tmp_path / name, *(stolen(v, defence=d) for d, v in values.items()))
        for name, values in (("a", {"ITP": 1.0, "PR": 3.0}), ("b", {"PR": 5.0, "ITP": 2.0}))
    ]
    found = compare_runs(*sides)
    assert [(row.told, row.difference.value) for row in found.figures] == [("ITP", 1), ("PR", 2)]
