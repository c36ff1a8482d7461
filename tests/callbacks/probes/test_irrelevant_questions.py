from dataclasses import replace

import pytest

from callbacks import IrrelevantQuestionProbe
from qpriv.errors import ConfigError, DataError, ModelError
from qpriv.models.encoder_record import read_encoders
from qpriv.pruning.predictor import DynamicThresholdPredictor, PredictorConfig
from qpriv.result import read_results

from ..victims import TinyData, TinyVictim

PREFIX = "attack/irrelevant_questions/"


def test_every_kind_is_asked_and_nothing_is_left_behind(tmp_path) -> None:
    victim = TinyVictim()
    config = PredictorConfig.scaled(victim.model.feature_sizes)
    DynamicThresholdPredictor(config).save_pretrained(tmp_path / "predictor")
    probe = IrrelevantQuestionProbe(
        max_samples=8,
        subset_size=3,
        predictor=tmp_path / "predictor",
        max_new_tokens=2,
        audit_isolation=True,
        on_error="stop",
    )
    results = probe.run_once(victim, TinyData(), tmp_path, 0)
    assert results == read_results(tmp_path / "results.jsonl")
    found = {result.name.removeprefix(PREFIX): result for result in results}
    for kind in ("cross_image", "nonsense", "false_premise"):
        rates = [found[f"{kind}_{n}_rate"] for n in ("hallucination", "refusal", "empty")]
        assert sum(rate.value for rate in rates) == pytest.approx(1)
        assert {rate.n for rate in rates} == {8}
        assert found[f"privacy_subset_{kind}_refusal_rate"].n == 3
        shares = ("tokens_kept", "tokens_touching", "area_visible")
        assert all(0 <= found[f"{kind}_sensitive_{share}"].value <= 1 for share in shares)
        touched = found[f"{kind}_faces_touched"].value
        assert touched >= found[f"{kind}_sensitive_area_visible"].value > 0
    assert found["own_refusal_rate"].attack["access"] == "queries"
    assert found["own_refusal_rate"].attack["queries"] == 8
    assert "own_hallucination_rate" not in found


def test_a_policy_without_scores_has_no_privacy_subset(tmp_path) -> None:
    probe = IrrelevantQuestionProbe(max_samples=4, max_new_tokens=1, on_error="stop")
    results = probe.run_once(TinyVictim(), TinyData(), tmp_path, 0)
    subset = [result for result in results if "privacy_subset" in result.name]
    assert len(subset) == 4 and {result.status for result in subset} == {"not applicable"}
    assert "name a predictor" in subset[0].note


def test_what_cannot_work_is_refused_before_training(tmp_path) -> None:
    with pytest.raises(ConfigError, match="subset_size"):
        IrrelevantQuestionProbe(subset_size=0)
    with pytest.raises(DataError, match="no phrases"):
        IrrelevantQuestionProbe(phrases=tmp_path / "none.json")
    with pytest.raises(ModelError, match="no predictor"):
        IrrelevantQuestionProbe(predictor=tmp_path)
    DynamicThresholdPredictor(PredictorConfig(sensitivity_dim=5)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="5 sensitivity values"):
        IrrelevantQuestionProbe(predictor=tmp_path).check(TinyVictim(), TinyData())
    victim = TinyVictim()
    same = DynamicThresholdPredictor(PredictorConfig.scaled(victim.model.feature_sizes))
    own, _ = read_encoders(victim.model.backbone)
    same.encoders = replace(own, backbone="other/llava", sensitivity="0")
    same.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="on the sensitivity encoder of other/llava"):
        IrrelevantQuestionProbe(predictor=tmp_path).check(victim, TinyData())
