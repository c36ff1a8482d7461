"""What a membership figure says beside its value."""

from dataclasses import replace

import numpy as np
import pytest

import callbacks.probes.membership
from callbacks import MembershipProbe
from qpriv.curve import CURVES_FILE, read_curves
from qpriv.datasets.sample import ArrayImage, VQASample
from qpriv.errors import ConfigError
from qpriv.result import read_results
from tests.callbacks.victims import TinyData, TinyVictim, fit


def brighter(sample: VQASample) -> VQASample:
    pixels = np.asarray(sample.image.load()) // 2 + 120
    return replace(sample, image=ArrayImage(pixels.astype(np.uint8)))


def test_figures_name_their_query_and_a_split_that_gives_itself_away_is_flagged(tmp_path) -> None:
    data = TinyData()
    data.parts["nonmembers"] = [brighter(sample) for sample in data.parts["nonmembers"]]
    probe = MembershipProbe(shadows=2, query_policy=("same", "resampled"), audit_isolation=True)
    results = probe.run_once(TinyVictim(), data, tmp_path, 0)
    assert {r.attack["query_policy"] for r in results} == {"same", "resampled"}
    by_query = [
        {r.name.removeprefix("attack/membership/"): r for r in results
         if r.attack["query_policy"] == query}
        for query in ("same", "resampled")
    ]  # fmt: skip
    for figures in by_query:
        prefixes = ("", "loss_", "calibrated_", "lira_", "rmia_")
        names = ("auc", "balanced_accuracy", "balanced_accuracy_best", "advantage")
        assert {p + name for p in prefixes for name in names} < figures.keys()
        for needed, name in ((1000, "tpr_at_1_fpr"), (10000, "tpr_at_0.1_fpr")):
            assert figures[name].value is None and figures[name].status == "not applicable"
            assert f"needs {needed} non-members, has 16" in figures[name].note
        assert figures["blind_auc"].ci[0] > 0.5
        assert all("without asking the model" in r.note for r in figures.values())
        assert all("short attacker" in r.note for r in figures.values())
        assert all((r.attack["members"], r.attack["nonmembers"]) == (16, 16)
                   for r in figures.values())  # fmt: skip
    assert by_query[0]["loss_auc"].value != by_query[1]["loss_auc"].value
    curves = read_curves(tmp_path / CURVES_FILE)
    assert len(curves) == 10 and all(curve.x[-1] == curve.y[-1] == 1 for curve in curves)
    for query, figures in zip(("same", "resampled"), by_query, strict=True):
        (loss,) = (c for c in curves if c.name.endswith("/loss_roc")
                   and c.attack == {"query_policy": query, "nonmembers": 16})  # fmt: skip
        steps = np.trapezoid(loss.y, loss.x)
        assert steps <= figures["loss_auc"].value + 0.05


def test_what_cannot_work_is_refused_before_training() -> None:
    with pytest.raises(ConfigError, match="query_policy is empty"):
        MembershipProbe(query_policy=())
    with pytest.raises(ConfigError, match="no members or no non-members of types"):
        MembershipProbe(question_types=("nothing",)).check(TinyVictim(), TinyData())


@pytest.mark.parametrize(
    ("every", "settings", "asked"),
    [
        pytest.param(
            1,
            {"epochs": -1, "max_steps": 3},
            [[1.0, 2.0]] * 2 + [[1.5]] * 2,
            marks=pytest.mark.slow,
        ),
        (100, {"epochs": -1, "max_steps": 3}, [[1.5]] * 2),
        pytest.param(
            100,
            {"epochs": 3, "limit_train_batches": 1},
            [[1.5]] * 2,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_shadow_models_are_trained_as_long_as_the_victim(
    every, settings, asked, tmp_path, monkeypatch
) -> None:
    train, trained = callbacks.probes.membership.train_shadow, []

    def record(victim, population, rows, samples, queries, asked_after, seed):
        trained.append(asked_after)
        return train(victim, population, rows, samples, queries, asked_after, seed)

    monkeypatch.setattr(callbacks.probes.membership, "train_shadow", record)
    fit(tmp_path, [MembershipProbe(every_n_epochs=every, shadows=2)], **settings)
    assert trained == asked
    results = read_results(tmp_path / "results.jsonl")
    assert {r.status for r in results} <= {"ok", "not applicable"}
    last = 2 if settings.get("limit_train_batches") else 1
    assert {r.epoch for r in results} == ({0, 1} if every == 1 else {last})
    with pytest.raises(ConfigError, match="4 groups of members or non-members are too few"):
        MembershipProbe(max_samples=4).check(TinyVictim(), TinyData())
