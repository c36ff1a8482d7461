import pytest

from callbacks import SideChannelProbe
from qpriv.errors import ConfigError
from qpriv.result import read_results

from ..victims import TinyData, TinyVictim


def test_every_figure_names_its_attacker_and_nothing_is_left_behind(tmp_path) -> None:
    probe = SideChannelProbe(bucket=16, audit_isolation=True, on_error="stop")
    results = probe.run_once(TinyVictim(), TinyData(), tmp_path, 0)
    assert results == read_results(tmp_path / "results.jsonl")
    names = [result.name for result in results]
    assert len(names) == len(set(names)) and all(
        n.startswith("attack/side_channel/") for n in names
    )
    by_name = {result.name.removeprefix("attack/side_channel/"): result for result in results}
    outsider = by_name["question_type_from_message_size_gain"]
    assert (outsider.attack["attacker"], outsider.attack["bucket"]) == ("outsider", 16)
    server = by_name["question_type_from_kept_places_accuracy"]
    assert (server.attack["attacker"], server.attack["knows_positions"]) == ("server", True)
    # half of the patches of every image, whatever is asked: only the text's length tells
    assert by_name["question_type_from_kept_count_gain"].value == 0
    assert by_name["question_type_from_text_length_gain"].value > 0
    # every picture of this data set shows a face: nothing to tell
    assert by_name["sensitive_from_kept_count_accuracy"].status == "not applicable"
    assert "attack/side_channel/answer_from_text_length_gain" in probe.metrics(results)


def test_without_positions_there_is_no_such_view(tmp_path) -> None:
    probe = SideChannelProbe(
        knows_positions=False, auxiliary_samples=40, max_samples=4, on_error="stop"
    )
    results = probe.run_once(TinyVictim(), TinyData(), tmp_path, 0)
    assert results and not any("kept_places" in result.name for result in results)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="bucket"):
        SideChannelProbe(bucket=0)
    with pytest.raises(ConfigError, match="auxiliary_samples"):
        SideChannelProbe(auxiliary_samples=0)
