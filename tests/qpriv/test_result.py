"""Results of earlier versions say the same under today's names."""

import msgspec
import pytest

from qpriv.io import append_lines
from qpriv.result import Result, append_results, read_results


@pytest.mark.parametrize(("told", "knows"), [("known", True), ("unknown", False)])
def test_what_an_attacker_knew_of_positions_is_read_under_its_new_name(tmp_path, told, knows):
    path = tmp_path / "results.jsonl"
    older = Result(name="attack/fora/psnr", value=1.0, n=2, attack={"cut": 4, "positions": told})
    append_lines(path, [msgspec.json.encode(older)])
    newer = Result(
        name="attack/fora/psnr", value=1.0, n=2, attack={"cut": 4, "knows_positions": knows}
    )
    assert read_results(path) == [newer]
    append_results(path, [newer])
    assert read_results(path) == [newer]  # it is the same figure: there is one line of it


def test_positions_of_the_models_input_are_left_as_they_are(tmp_path):
    path = tmp_path / "results.jsonl"
    result = Result(name="accuracy", value=0.5, n=2, attack={"positions": "original"})
    append_results(path, [result])
    assert read_results(path) == [result]
