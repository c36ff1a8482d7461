import pytest

from callbacks import AttributeProbe
from qpriv.errors import ConfigError

from ..victims import TinyData, TinyVictim


def test_every_cut_is_read_and_nothing_is_left_behind(tmp_path) -> None:
    probe = AttributeProbe(targets=("question_type",), audit_isolation=True, on_error="stop")
    results = probe.run_once(TinyVictim(cuts=(2, 6)), TinyData(), tmp_path, 0)
    assert {result.attack["cut"] for result in results} == {2, 6}
    names = {result.name for result in results}
    assert "attack/attributes/question_type_gain_over_question" in names
    for result in results:
        assert result.attack["auxiliary"] == "labelled in-domain samples, through the true client"
        assert result.ci is not None and result.dataset == "Random/test"


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="no target"):
        AttributeProbe(targets=())
    with pytest.raises(ConfigError, match="auxiliary_samples"):
        AttributeProbe(auxiliary_samples=0)
