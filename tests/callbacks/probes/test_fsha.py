import json

import pytest

from callbacks import FshaProbe
from qpriv.errors import ConfigError
from qpriv.result import read_results

from ..victims import TinyData, TinyVictim

QUICK = {"steps": 2, "batch_size": 4, "max_samples": 6, "auxiliary_samples": 12}


def test_attacker_is_carried_over_epochs_and_leaves_no_trace(tmp_path) -> None:
    victim, data = TinyVictim(), TinyData()
    probe = FshaProbe(**QUICK, log_private=True, audit_isolation=True, on_error="stop")
    for epoch in (0, 1):
        probe.run_once(victim, data, tmp_path, epoch)
    results = read_results(tmp_path / "results.jsonl")
    found = {(r.name.removeprefix("attack/fsha/"), r.epoch): r for r in results}
    assert [found["psnr", epoch].attack["steps"] for epoch in (0, 1)] == [2, 4]
    for name in ("psnr", "psnr_sensitive", "psnr_dropped", "floor_mean_image", "task_accuracy"):
        assert found[name, 1].value is not None
    figure = found["psnr", 1]
    assert figure.attack["active"] is True and figure.attack["cut"] == 4
    assert figure.attack["short"] is True and figure.note == "short attacker"
    # the honest model is the same at both epochs
    assert found["task_accuracy_honest", 0].value == found["task_accuracy_honest", 1].value
    media = [json.loads(line) for line in (tmp_path / "media.jsonl").read_text().splitlines()]
    assert [entry["kind"] for entry in media] == ["reconstruction"] * 2


def test_the_published_pilot_has_figures_of_its_own(tmp_path) -> None:
    for pilot in ("base", "convolution"):
        probe = FshaProbe(**QUICK, pilot=pilot, on_error="stop")
        probe.run_once(TinyVictim(), TinyData(), tmp_path, 0)
    results = {r.name: r for r in read_results(tmp_path / "results.jsonl")}
    strong = results["attack/fsha/psnr"]
    published = results["attack/fsha_convolution/psnr"]
    assert strong.attack["knows_policy"] is True and "base model" in strong.attack["auxiliary"]
    assert published.attack["knows_policy"] is False
    assert strong.attack["pilot"] == "base" != published.attack["pilot"]
    assert strong.attack["client_rate"] == 3e-4


def test_the_control_is_a_passive_attacker(tmp_path) -> None:
    probe = FshaProbe(**QUICK, control=True, client_rate=None, on_error="stop")
    victim = TinyVictim()
    results = probe.run_once(victim, TinyData(), tmp_path, 0)
    (figure,) = [r for r in results if r.name == "attack/fsha_control/psnr"]
    assert figure.attack["active"] is False
    assert figure.attack["client_rate"] == victim.recipe.learning_rate


def test_detector_reports_what_it_rests_on(tmp_path) -> None:
    probe = FshaProbe(**QUICK, detector=True, on_error="stop")
    results = probe.run_once(TinyVictim(cuts=(2, 6)), TinyData(), tmp_path, 0)
    (score,) = [r for r in results if r.name == "attack/fsha/splitguard_score"]
    assert (score.status, score.note) == ("not applicable", "0 fake batches so far")
    assert score.attack["cut"] == 2  # gradients that leave a U-shaped server cross there


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"batch_size": 1}, {"penalty": -1.0}, {"client_rate": 0.0}]
)
def test_impossible_settings_are_refused(wrong) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        FshaProbe(**wrong)
