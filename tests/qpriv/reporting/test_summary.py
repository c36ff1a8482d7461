"""The sentences of a page are made from its figures."""

from qpriv.reporting.evidence import Evidence
from qpriv.reporting.run_folder import read_run
from qpriv.reporting.summary import findings

from . import fakes


def sentences(folder, *results):
    fakes.write_run(folder, list(results))
    return findings(Evidence.of([read_run(folder)]), [])


def test_gradients_are_told_beside_guessing(tmp_path):
    name = "attack/gradient/image_top1"
    attack = {"surface": "cut", "cut": 4, "prior": 0.125}
    (said,) = sentences(tmp_path, fakes.result(name, 0.6875, attack=attack))
    assert said.startswith("Gradients:") and "0.688 (guessing 0.125)" in said


def test_nothing_is_said_of_what_was_not_measured(tmp_path):
    assert sentences(tmp_path, fakes.result("kept_tokens", 32.0)) == []


def test_an_answer_that_no_query_policy_changes_is_told_once(tmp_path):
    (said,) = sentences(
        tmp_path,
        *(
            fakes.result("attack/membership/auc", 0.659, attack={"query_policy": query})
            for query in ("same", "off", "resampled")
        ),
    )
    assert said.count("off 0.659") == 1
