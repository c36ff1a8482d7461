"""Claims judged together: Holm's adjustment, families of a study, and what would decide."""

import pytest

from cli.study.config import read_study
from qpriv.errors import ConfigError
from qpriv.reporting.claims import adjusted_claims, evaluate_claims, topics, would_decide
from qpriv.reporting.claims.families import REST, holm
from qpriv.reporting.claims.verdict import Claim, judged, p_value
from qpriv.reporting.estimate import Estimate
from qpriv.reporting.evidence import Evidence
from qpriv.reporting.report import undecided, write_report

from . import fakes


def claim(value: float, half: float = 0.02, topic: str = "Membership", n: int = 100) -> Claim:
    ends = Estimate(value, value - half, value + half, n=n, seeds=(0,), rule="within one seed")
    return judged(topic, "It is above 0.", ends, "Figure", above=0.0)


def test_holm_is_the_step_down_rule() -> None:
    assert holm([0.04, 0.001, 0.02]) == pytest.approx([0.04, 0.003, 0.04])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(("seeds", "rule"), [((0,), "within one seed"), ((0, 1, 2), "over seeds")])
def test_the_p_value_is_at_5_percent_where_the_interval_ends(seeds, rule) -> None:
    found = Estimate(1.0, 0.2, 3.0, n=9, seeds=seeds, rule=rule)
    for end in (0.2, 3.0):
        p, error = p_value(found, end) or (0.0, 0.0)
        assert p == pytest.approx(0.05)
        assert error > 0
    assert p_value(Estimate(1.0, None, None, n=9, seeds=(0,), rule="none"), 0.0) is None


def test_what_a_claim_shows_by_itself_may_not_do_in_a_family() -> None:
    weak, strong = claim(0.022), claim(0.1)
    assert weak.verdict == strong.verdict == "reproduced"
    unmeasured = judged("Membership", "Unmeasured.", None, "", above=0.0)
    alone = adjusted_claims([weak, unmeasured], {})
    assert [each.verdict for each in alone] == ["reproduced", "undecided"]
    assert alone[0].tests == 1 and alone[0].adjusted == pytest.approx(alone[0].p)
    together = adjusted_claims([weak, *[claim(0.0)] * 3, strong], {})
    assert (together[0].verdict, together[0].unadjusted) == ("undecided", "reproduced")
    assert (together[-1].verdict, together[0].family, together[0].tests) == ("reproduced", REST, 5)


def test_declared_families_are_adjusted_apart() -> None:
    rest = [claim(0.0, topic="Sensitive tokens")] * 3
    found = adjusted_claims([claim(0.022), *rest], {"members": ["Membership"]})
    assert (found[0].verdict, found[0].family, found[0].tests) == ("reproduced", "members", 1)


def test_an_undecided_claim_says_what_would_decide_it() -> None:
    (open_claim,) = adjusted_claims([claim(0.01)], {})
    # (1.96 + .84) x .02 / 1.96 / .01 = 2.86 times the error, squared, of 100 images
    assert would_decide(open_claim) == "About 1 seed of 820 images would decide it."
    several = adjusted_claims([claim(0.01)] * 5, {})
    assert would_decide(several[0]) == "About 1 seed of 1,300 images would decide it."
    assert would_decide(adjusted_claims([claim(0.0)], {})[0]).startswith("No feasible")
    assert would_decide(adjusted_claims([claim(0.1)], {})[0]) == ""
    over = Estimate(0.01, -0.03, 0.05, n=100, seeds=(0, 1, 2), rule="over seeds")
    seeds = adjusted_claims([judged("Membership", "S.", over, "F", above=0.0)], {})[0]
    assert would_decide(seeds) == "About 21 seeds of 100 images would decide it."


def test_every_topic_can_be_named_in_a_family() -> None:
    rows = [row for policy in fakes.POLICIES for row in fakes.policy_results(policy, 0)]
    assert {each.topic for each in evaluate_claims(Evidence.gathered(rows))} <= set(topics())


STUDY = """
name: s
seeds: [0]
stages: [{{name: a, config: a.yaml, minutes: 1}}]
claim_families: {families}
"""


@pytest.mark.parametrize(
    ("families", "told"),
    [
        ("{x: [Membrship]}", "no claim has the topic Membrship"),
        ("{x: [Membership], y: [Membership]}", "in several families"),
        ("{x: []}", "names no topic"),
    ],
)
def test_a_study_with_a_family_that_cannot_be_is_refused(tmp_path, families, told) -> None:
    (tmp_path / "a.yaml").touch()
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.format(families="{x: [Membership]}"))
    assert read_study(path).claim_families == {"x": ("Membership",)}
    path.write_text(STUDY.format(families=families))
    with pytest.raises(ConfigError, match=told):
        read_study(path)


def test_the_report_shows_family_p_values_and_what_would_decide(tmp_path) -> None:
    rows = [row for policy in fakes.POLICIES for row in fakes.policy_results(policy, 0, epochs=1)]
    folder = tmp_path / "run"
    folder.mkdir()
    fakes.write_run(folder, rows, tags={})
    record = '{"study":"s","stage":"a","claim_families":{"answers":["Accuracy and ratio"]}}'
    (folder / "cell.json").write_text(record)
    page = write_report([folder], tmp_path / "out").read_text()
    assert "p (Holm)" in page and "in answers)" in page and f"in {REST})" in page
    lines = undecided([folder])
    assert lines and all(line.startswith("Undecided: ") for line in lines)
    advice = [line.rpartition(". ")[2] for line in lines]
    assert all(each in page for each in advice) and any(
        "would decide it" in each for each in advice
    )
