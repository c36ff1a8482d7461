"""`GradientInversionProbe` in a training: what it reports, and that nobody notices it."""

from pathlib import Path

import pytest
import torch

from callbacks import GradientInversionProbe
from qpriv.errors import ConfigError
from qpriv.result import read_results
from qpriv.split import Channel

from ..victims import TinyData, TinyVictim, fit

SMALL = {"max_samples": 2, "auxiliary_samples": 8, "candidates": 3, "stand_ins": 1}


def test_training_with_the_probe_ends_in_bit_equal_weights(tmp_path: Path) -> None:
    plain = fit(tmp_path / "plain", [], epochs=1)
    probe = GradientInversionProbe(audit_isolation=True, on_error="stop", **SMALL)
    probed = fit(tmp_path / "probed", [probe], epochs=1)
    assert [key for key in plain if not torch.equal(plain[key], probed[key])] == []
    results = {result.name: result for result in read_results(tmp_path / "probed/results.jsonl")}
    assert {
        "attack/gradient/label_accuracy_head",
        "attack/gradient/label_accuracy_lora",
        "attack/gradient/label_accuracy_prior",
        "attack/gradient/span_f1",
        "attack/gradient/span_feasible",
        "attack/gradient/gradient_norm",
        "attack/gradient/image_top1",
        "attack/gradient/cut_gradient_norm",
    } <= results.keys()
    for result in results.values():
        assert result.dataset == "Random/test" and result.policy == "random(0.5)"
        assert result.attack["access"] and result.attack["gradient_norm"] > 0
    assert results["attack/gradient/image_top1"].attack["cut"] == 4


def test_u_shaped_split_is_attacked_at_both_cuts(tmp_path: Path) -> None:
    module = TinyVictim()
    module.channel = Channel.supposed((2, 6))
    probe = GradientInversionProbe(surfaces=("cut",), on_error="stop", **SMALL)
    results = {r.name: r for r in probe.run_once(module, TinyData(), tmp_path, 0)}
    assert results["attack/gradient/image_top1"].attack["cut"] == 2
    assert results["attack/gradient/tail_label_accuracy"].attack["cut"] == 6
    assert results["attack/gradient/tail_label_accuracy"].attack["attacker"] == "server"
    assert not any("span" in name for name in results)


@pytest.mark.parametrize(
    "wrong",
    [{"candidates": 1}, {"stand_ins": 0}, {"surfaces": ()}, {"auxiliary_samples": 3}],
)
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"candidates|auxiliary_samples"):
        GradientInversionProbe(**wrong)  # type: ignore[arg-type]


def test_cut_before_which_nothing_trains_is_refused() -> None:
    module = TinyVictim()
    module.channel = Channel.supposed((0,))
    with pytest.raises(ConfigError, match="cut 0"):
        GradientInversionProbe().check(module, TinyData())
