"""Every claim ends in each of the three verdicts, on figures made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from qpriv.reporting.claims import RULE, alpha_sweeps, decide, evaluate_claims
from qpriv.reporting.claims.attacks import declared_claims, identities_gone
from qpriv.reporting.claims.pruning import (
    accuracy_falls,
    alpha_order,
    dynamic_against_constant,
    dynamic_against_fixed,
    sensitive_goes_first,
    sensitive_tokens_go,
)
from qpriv.reporting.claims.trend import below_random, below_trend
from qpriv.reporting.estimate import Estimate
from qpriv.reporting.evidence import Evidence
from qpriv.reporting.figures.trend import trend_picture

from . import fakes
from .fakes import result

RATIOS = (0.0, 0.3, 0.5, 0.7, 0.9)
VERDICTS = ("reproduced", "not reproduced", "undecided")


def policy_of(ratio: float, rank_by: str = "fused") -> str:
    return f"fixed({ratio:g},{rank_by})" if ratio else "off"


def evidence(*rows, tags=None) -> Evidence:
    return Evidence.gathered([replace(row, tags=tags or {}) for row in rows])


def tagged(*groups) -> Evidence:
    return Evidence.gathered([replace(row, tags=tags) for tags, rows in groups for row in rows])


def declared(held, topic):
    """Return what is claimed of an attack beside its declaration, on one topic."""
    return [claim for claim in declared_claims(held) if claim.topic == topic]


def ladder_rows(name, values, *, half=0.01, unit="", **given):
    return [
        result(name, value, half=half, unit=unit, policy=policy_of(ratio), **given)
        for ratio, value in zip(RATIOS, values, strict=True)
    ]


def tokens(policy: str, ratio: float, seed: int = 0):
    return result("kept_tokens", 64 * (1 - ratio), unit="tokens", policy=policy, seed=seed)


def error_of(psnr: float) -> float:
    return 10 ** (-psnr / 10)


def only(claims):
    (claim,) = list(claims)
    return claim


@pytest.mark.parametrize(
    ("ends", "below", "above"),
    [
        ((0.01, 0.04), "reproduced", "not reproduced"),
        ((0.06, 0.09), "not reproduced", "reproduced"),
        ((0.04, 0.06), "undecided", "undecided"),
        ((0.05, 0.06), "undecided", "undecided"),
        (None, "undecided", "undecided"),
    ],
)
def test_intervals_decide(ends, below, above):
    low, high = ends or (None, None)
    estimate = Estimate(0.05, low, high, n=9, seeds=(0,), rule="none")
    assert decide(estimate, below=0.05) == below
    assert decide(estimate, above=0.05) == above


def test_nothing_measured_decides_nothing():
    assert decide(None, above=0.0) == "undecided"
    with pytest.raises(ValueError, match="exactly one"):
        decide(None, above=0.0, below=1.0)
    assert "undecided otherwise" in RULE


@pytest.mark.parametrize(
    ("accuracies", "half", "verdict"),
    [
        ((0.86, 0.82, 0.80, 0.77, 0.71), 0.01, "reproduced"),
        ((0.71, 0.77, 0.80, 0.82, 0.86), 0.01, "not reproduced"),
        ((0.80, 0.81, 0.80, 0.79, 0.80), 0.05, "undecided"),
    ],
)
def test_accuracy_falls(accuracies, half, verdict):
    claim = only(accuracy_falls(evidence(*ladder_rows("accuracy", accuracies, half=half))))
    assert claim.verdict == verdict
    assert "n = 300, seed 0" in claim.evidence


@pytest.mark.parametrize(
    ("share", "half", "verdict"),
    [(0.02, 0.01, "reproduced"), (0.2, 0.01, "not reproduced"), (0.045, 0.01, "undecided")],
)
def test_sensitive_tokens_go(share, half, verdict):
    row = result("sensitive_tokens_kept", share, half=half, policy="fixed(0.5,fused)")
    assert only(sensitive_tokens_go(evidence(row))).verdict == verdict


def test_a_ranking_by_utility_is_not_asked_for_sensitive_tokens():
    row = result("sensitive_tokens_kept", 0.4, half=0.01, policy="fixed(0.5,utility)")
    claim = only(sensitive_tokens_go(evidence(row)))
    assert claim.verdict == "undecided" and "Not measured here" in claim.evidence


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.2, "reproduced"), (0.8, "not reproduced"), (1.01, "undecided")]
)
def test_sensitive_goes_first_and_says_what_survives(ratio, verdict):
    rows = [
        result("sensitivity_exclusion_ratio", ratio, half=0.1, policy="dtp(fused)"),
        result("sensitive_tokens_kept", 0.65, half=0.01, policy="dtp(fused)"),
    ]
    claim = only(sensitive_goes_first(evidence(*rows)))
    assert claim.verdict == verdict
    assert "SER alone is no evidence of privacy: 0.650" in claim.evidence


@pytest.mark.parametrize(
    ("psnr", "verdict"),
    [(14.3, "reproduced"), (17.0, "not reproduced"), (14.69, "undecided")],
)
def test_the_dynamic_policy_against_the_linear_trend(psnr, verdict):
    values = (18.4, 13.5, 13.3, 12.4, 10.7)
    line = np.polyval(np.polyfit(RATIOS, [error_of(value) for value in values], 1), 0.256)
    faces = ladder_rows("attack/supervised_inversion/psnr_sensitive", values, unit="dB")
    rows = [
        *faces,
        *(tokens(policy_of(ratio), ratio) for ratio in RATIOS),
        result(
            "attack/supervised_inversion/psnr_sensitive",
            psnr,
            unit="dB",
            half=0.1,
            policy="dtp(fused)",
        ),
        tokens("dtp(fused)", 0.256),
    ]
    claims = {c.statement.split(":")[0]: c for c in below_trend(evidence(*rows))}
    assert claims["dtp(fused)"].verdict == verdict
    assert claims["dtp(fused)"].estimate.value == pytest.approx(error_of(psnr) - line)


def test_a_point_of_the_line_counts_in_it():
    values = (4.0, 1.0, 1.0, 1.0, 1.0)
    line = np.polyval(np.polyfit(RATIOS, [error_of(value) for value in values], 1), 0.5)
    rows = ladder_rows("attack/supervised_inversion/psnr_sensitive", values, unit="dB")
    claim = only(below_trend(evidence(*rows)))
    assert claim.estimate.value == pytest.approx(error_of(1.0) - line)
    # the point is part of the line, so that its own noise counts less than in full
    assert claim.estimate.high - claim.estimate.low < 0.02
    assert claim.verdict == "reproduced"


def test_a_mask_that_is_blind_to_the_face_does_not_lie_below_the_trend():
    kept, dropped = error_of(22.0), error_of(11.0)
    errors = [(1 - ratio) * kept + ratio * dropped for ratio in RATIOS]
    values = [float(-10 * np.log10(error)) for error in errors]
    name = "attack/supervised_inversion/psnr_sensitive"
    claim = only(below_trend(evidence(*ladder_rows(name, values, half=0.1, unit="dB"))))
    assert claim.estimate.value == pytest.approx(0.0, abs=1e-9)
    assert claim.verdict == "undecided"
    line = np.polyval(np.polyfit(RATIOS, values, 1), 0.5)
    assert values[2] < line - 0.8, "in decibels it would"


@pytest.mark.parametrize(
    ("aware", "verdict"), [(14.1, "reproduced"), (17.9, "not reproduced"), (16.4, "undecided")]
)
def test_a_policy_is_paired_with_random_pruning_at_its_ratio(aware, verdict):
    def face(policy, value):
        name = "attack/supervised_inversion/psnr_sensitive"
        return result(name, value, half=0.2, unit="dB", policy=policy)

    half = [face("fixed(0.5,fused)", aware), face("random(0.5)", 16.5), face("random(0.3)", 18.0)]
    claim = only(below_random(evidence(*half)))
    assert claim.verdict == verdict and "random(0.5)" in claim.statement
    assert claim.estimate.value == pytest.approx(aware - 16.5)
    assert not list(below_random(evidence(half[0], half[2]))), "another ratio is no pair"


def test_the_trend_needs_all_five_ratios():
    rows = ladder_rows(
        "attack/supervised_inversion/psnr_sensitive", (4.0, 1.0, 1.0, 1.0, 1.0), unit="dB"
    )[:3]
    claim = only(below_trend(evidence(*rows)))
    assert claim.verdict == "undecided" and "0.3, 0.5, 0.7 and 0.9" in claim.evidence


def test_a_study_of_one_run_has_no_trend_yet():
    half = fakes.policy_results("fixed(0.5,fused)", seed=0)
    verdicts = {claim.verdict for claim in below_trend(evidence(*half))}
    assert verdicts == {"undecided"}


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [((0.75, 0.70), "reproduced"), ((0.70, 0.80), "not reproduced"), ((0.75, 0.74), "undecided")],
)
def test_the_order_of_alpha(ends, verdict):
    rows = [
        result("accuracy", ends[0], half=0.01, policy="dtp(fused,alpha=0)"),
        result("accuracy", 0.76, half=0.01, policy="dtp(fused,alpha=0.5)"),
        result("accuracy", ends[1], half=0.01, policy="dtp(fused)"),
        result("kept_tokens", 47.0, unit="tokens", policy="dtp(fused)"),
    ]
    claim = only(alpha_order(evidence(*rows, tags={"utility": "random"})))
    assert claim.verdict == verdict
    assert claim.statement.startswith("dtp, utility random:")
    assert "1: 0." in claim.evidence and "with 47.0 tokens" in claim.evidence
    assert "Order by accuracy:" in claim.evidence


def test_branches_are_swept_apart():
    points = [f"dtp(fused,alpha={a:g})" if a != 1 else "dtp(fused)" for a in (0, 0.5, 1)]
    rows = [result("accuracy", 0.8, half=0.01, policy=policy) for policy in points]
    sweeps = alpha_sweeps(tagged(({"utility": "random"}, rows), ({"utility": "grounded"}, rows)))
    assert sorted(sweeps) == ["dtp, utility grounded", "dtp, utility random"]
    assert [list(sweep) for sweep in sweeps.values()] == [[0.0, 0.5, 1.0]] * 2


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    [(0.90, "reproduced"), (0.75, "not reproduced"), (0.83, "undecided")],
)
def test_the_dynamic_policy_against_fixed_and_constant(accuracy, verdict):
    rows = [
        *ladder_rows("accuracy", (0.86, 0.82, 0.80, 0.77, 0.71)),
        *(tokens(policy_of(ratio), ratio) for ratio in RATIOS),
        result("accuracy", accuracy, half=0.01, policy="dtp(fused)"),
        tokens("dtp(fused)", 0.15),
        result("accuracy", 0.83, half=0.01, policy="constant(0.151,fused)"),
    ]
    held = evidence(*rows)
    fixed = only(dynamic_against_fixed(held))
    assert fixed.estimate.value == pytest.approx(accuracy - 0.84)
    constant = only(dynamic_against_constant(held))
    assert constant.estimate.value == pytest.approx(accuracy - 0.83)
    assert (fixed.verdict, constant.verdict) == (verdict, verdict)


def test_the_constant_control_is_one_condition_whatever_its_ratio():
    rows = [
        result("accuracy", 0.83, policy=f"constant({ratio},fused)", seed=seed)
        for seed, ratio in enumerate((0.25, 0.26, 0.27))
    ]
    assert [c.policy for c in evidence(*rows).conditions] == ["constant(fused)"]
    assert evidence(*rows).figures[0].estimate.seeds == (0, 1, 2)


@pytest.mark.parametrize(
    ("psnr", "half", "verdict"),
    [(18.4, 0.2, "reproduced"), (16.4, 0.2, "not reproduced"), (18.1, 0.5, "undecided")],
)
def test_faces_cross(psnr, half, verdict):
    rows = [
        result("attack/supervised_inversion/psnr_sensitive", psnr, unit="dB", half=half),
        result("attack/supervised_inversion/floor_mean_face", 16.0, unit="dB", half=0.01),
    ]
    assert only(declared(evidence(*rows), "Face detail without pruning")).verdict == verdict


def test_the_paired_gain_goes_before_the_difference():
    rows = [
        result("attack/supervised_inversion/psnr_sensitive", 18.1, unit="dB", half=0.5),
        result("attack/supervised_inversion/floor_mean_face", 16.0, unit="dB", half=0.5),
        result("attack/supervised_inversion/gain_over_mean_face", 2.1, unit="dB", half=0.05),
    ]
    claim = only(declared(evidence(*rows), "Face detail without pruning"))
    assert claim.verdict == "reproduced" and claim.estimate.interval == pytest.approx((2.05, 2.15))


def test_the_stronger_attacker_is_the_one_who_counts():
    rows = [
        result(
            "attack/supervised_inversion/gain_over_mean_face",
            value,
            unit="dB",
            half=0.1,
            attack={"knows_positions": knows, "short": True},
        )
        for knows, value in ((False, 5.0), (True, 1.0))
    ]
    claim = only(declared(evidence(*rows), "Face detail without pruning"))
    assert claim.verdict == "not reproduced" and "Short attacker" not in claim.evidence
    assert claim.estimate.value == 1.0


@pytest.mark.parametrize(
    ("rate", "half", "across", "gone"),
    [
        (0.30, 0.05, "reproduced", "not reproduced"),
        (0.02, 0.015, "not reproduced", "reproduced"),
        (0.17, 0.02, "undecided", "not reproduced"),
        (0.05, 0.02, "not reproduced", "undecided"),
    ],
)
def test_identities(rate, half, across, gone):
    attack = {"chance": 1 / 60, "gallery": 60}
    name = "attack/supervised_inversion/reid_top1"
    rows = [
        result(name, rate, half=half, attack=attack),
        result(name, rate, half=half, attack=attack, policy="fixed(0.5,fused)"),
        result("sensitive_tokens_kept", 0.01, half=0.01, policy="fixed(0.5,fused)"),
        result("sensitive_tokens_kept", 0.60, half=0.01, policy="fixed(0.5,utility)"),
    ]
    assert only(declared(evidence(*rows), "Re-identification")).verdict == across
    claim = only(identities_gone(evidence(*rows)))
    assert claim.verdict == gone and claim.statement.startswith("fixed(0.5,fused)")
    # where it was measured, the scenes without any patch of the face are the ones that count
    bare = result(f"{name}_gone", 0.5, half=0.01, attack=attack, policy="fixed(0.5,fused)")
    claim = only(identities_gone(evidence(*rows, bare)))
    assert claim.verdict == "not reproduced" and "no patch on the face" in claim.statement


@pytest.mark.parametrize(
    ("auc", "verdict"),
    [(0.73, "reproduced"), (0.99, "not reproduced"), (0.95, "undecided")],
)
@pytest.mark.parametrize("query", ["same", "off", "resampled"])
def test_membership_under_each_query_policy(auc, verdict, query):
    rows = [
        result("attack/membership/auc", 0.95, half=0.01, attack={"query_policy": "same"}),
        result(
            "attack/membership/auc",
            auc,
            half=0.01,
            policy="fixed(0.5,fused)",
            attack={"query_policy": query, "short": True},
        ),
    ]
    claim = only(declared(evidence(*rows), "Membership"))
    assert claim.verdict == verdict
    assert f"query policy {query}" in claim.statement
    assert "blind baseline" in claim.evidence and "Short attacker" in claim.evidence


def test_seeds_are_paired_over_the_whole_claim():
    rows = [
        row
        for seed, level in enumerate((0.0, 0.2, -0.2))
        for row in ladder_rows(
            "accuracy", [a + level for a in (0.86, 0.82, 0.80, 0.77, 0.71)], seed=seed
        )
    ]
    claim = only(accuracy_falls(evidence(*rows)))
    assert claim.verdict == "reproduced", "levels differ between seeds, slopes do not"
    assert claim.estimate.rule == "over seeds"


def test_without_any_figure_every_claim_is_undecided_and_says_what_it_needs():
    claims = evaluate_claims(evidence(result("accuracy", 0.8)))
    assert len(claims) >= 8
    assert {claim.verdict for claim in claims} == {"undecided"}
    assert all("needs" in claim.evidence for claim in claims)


@pytest.mark.parametrize(
    ("found", "who"),
    [({"supervised_inversion": 24.0, "fora": 19.0, "sdar": 21.0}, "supervised inversion"),
     ({"fora": 19.0, "sdar": 21.0}, "SDAR"), ({"fora": 19.0}, "FORA"), ({"fsha": 20.0}, "FSHA")],
)  # fmt: skip
def test_claims_of_reconstruction_speak_of_the_strongest_attacker_that_was_measured(found, who):
    def rows(name, figure, factor, policy="off"):
        return result(f"attack/{name}/{figure}", factor, half=0.1, unit="dB", policy=policy)

    held = evidence(
        *(rows(name, "psnr_sensitive", value) for name, value in found.items()),
        *(rows(name, "floor_mean_face", 15.0) for name in found),
    )
    claim = only(declared(held, "Face detail without pruning"))
    assert claim.statement.startswith("off: the inverter beats") and f"er: {who}" in claim.statement
    assert claim.estimate.value == pytest.approx(max(found.values()) - 15.0)

    steps = [(policy_of(ratio), ratio) for ratio in RATIOS] + [("dtp(fused)", 0.25)]
    held = evidence(
        *(rows(name, "psnr_sensitive", value - 5 * ratio, policy)
          for name, value in found.items() for policy, ratio in steps),
        *(tokens(policy, ratio) for policy, ratio in steps),
        *(result(f"attack/{name}/reid_top1", value / 100, half=0.001, policy="off",
                 attack={"chance": 0.017})
          for name, value in found.items()),
        *(result(f"attack/{name}/reid_top1_gone", 0.01, half=0.001, policy="off",
                 attack={"chance": 0.017})
          for name in found),
    )  # fmt: skip
    assert all(f"attacker: {who}" in claim.statement for claim in below_trend(held))
    gone = only([claim for claim in identities_gone(held)])
    assert f"attacker: {who}" in gone.statement and gone.verdict == "reproduced"
    assert len(list(trend_picture(held))) == 1
