import numpy as np
import pytest
from scipy.stats import norm

from qpriv.attacks.membership.lira import lira_attack, lira_scores, log_odds
from qpriv.attacks.membership.rmia import reference_probability, rmia_attack, rmia_scores
from qpriv.attacks.membership.scoring import ShadowSignals
from qpriv.attacks.query import Replies
from qpriv.metrics.membership import attack_report


def drawn(n: int = 40, shadows: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    inside = rng.random((shadows, n)) < 0.5
    inside[0], inside[1] = True, False  # every sample has both kinds
    return rng.normal(size=n), rng.normal(size=(shadows, n)) + inside, inside


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_lira_equals_the_papers_formula_in_a_loop(mode: str, fixed: bool) -> None:
    victim, shadows, inside = drawn()
    ours = lira_scores(victim, shadows, inside, mode=mode, fixed_variance=fixed)  # type: ignore[arg-type]
    split = [(shadows[inside[:, i], i], shadows[~inside[:, i], i]) for i in range(len(victim))]
    spreads = [
        np.concatenate([part[k] - np.median(part[k]) for part in split]).std() for k in (0, 1)
    ]
    for i, (in_, out) in enumerate(split):
        s_in, s_out = spreads if fixed else (in_.std(), out.std())
        if mode == "offline":
            expected = norm.logcdf(victim[i], np.median(out), s_out + 1e-30)
        else:
            expected = norm.logpdf(victim[i], np.median(in_), s_in + 1e-30) - norm.logpdf(
                victim[i], np.median(out), s_out + 1e-30
            )
        assert np.isclose(ours[i], expected, rtol=1e-10)


def test_lira_without_any_outside_shadow_has_no_score() -> None:
    victim, shadows, inside = drawn()
    inside[:, 3] = True
    scores = lira_scores(victim, shadows, inside)
    assert np.isnan(scores[3]) and np.isfinite(np.delete(scores, 3)).all()


def test_log_odds_is_exact_at_both_ends() -> None:
    p = np.asarray([1e-12, 0.3, 1 - 1e-9])
    assert np.allclose(log_odds(np.log(p)), np.log(p) - np.log1p(-p), rtol=1e-6)
    assert np.isfinite(log_odds(np.asarray([0.0, -1000.0]))).all()


@pytest.mark.parametrize("gamma", [1.0, 2.0])
def test_sorted_rmia_is_bit_equal_to_the_matrix_of_pairs(gamma: float) -> None:
    rng = np.random.default_rng(1)
    x, z = rng.integers(0, 20, 300) / 4, rng.integers(1, 20, 200) / 4  # ties on purpose
    matrix = (x[:, None] > z[None, :] * gamma).mean(axis=1)
    assert np.array_equal(rmia_scores(x, z, gamma), matrix)


def test_offline_reference_mixes_in_a_model_that_is_sure() -> None:
    assert reference_probability(np.asarray([0.2]), 0.3)[0] == pytest.approx((1.3 * 0.2 + 0.7) / 2)


@pytest.mark.parametrize("attack", [lira_attack, rmia_attack])
def test_attacks_find_members_of_varied_difficulty_where_a_threshold_cannot(attack) -> None:
    rng = np.random.default_rng(2)
    c, pool, shadows = 200, 400, 6
    difficulty = rng.normal(0, 3, c + pool)
    inside = np.zeros((shadows, c + pool), dtype=bool)
    inside[:, c:] = rng.random((shadows, pool)) < 0.4

    def reply(odds: np.ndarray) -> Replies:
        log_prob = -np.log1p(np.exp(-odds))
        return Replies(log_prob, log_prob, np.exp(log_prob), odds, odds)

    def asked(seen: np.ndarray, difficulty: np.ndarray) -> Replies:
        return reply(difficulty + 2 * seen + rng.normal(0, 0.5, len(seen)))

    member = np.arange(c) < c // 2
    signals = ShadowSignals(
        asked(member, difficulty[:c]),
        tuple(asked(row, difficulty) for row in inside),
        inside,
    )
    found = attack(signals)
    report = {
        r.name: r.value
        for r in attack_report(found.scores, member, threshold=found.threshold, resamples=5)
    }
    plain = {r.name: r.value for r in attack_report(signals.victim.log_prob, member, resamples=5)}
    assert report["auc"] > plain["auc"] + 0.1
    assert report["balanced_accuracy"] > 0.7
