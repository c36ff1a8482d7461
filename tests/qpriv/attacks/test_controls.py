"""Controls across attacks: where nothing can leak nothing may be found, and the other way round.

Beside those that stand with their attack: the identity client (`test_fora`), memorised labels by
three attacks (`test_membership`), shuffled labels of a probe (`test_attributes`).
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from qpriv.attacks.membership.lira import lira_attack
from qpriv.attacks.membership.rmia import rmia_attack
from qpriv.attacks.membership.scoring import (
    ShadowSignals,
    calibrated_attack,
    loss_attack,
    shadow_attack,
)
from qpriv.attacks.observation import Observation
from qpriv.attacks.side_channel import SideChannel, side_channel_report
from qpriv.metrics.membership import attack_report
from qpriv.split import Direction, Kind, Transcript
from tests.qpriv.attacks.membership.test_scoring import MEMBERS, signals_after
from tests.qpriv.attacks.reconstruction.test_fora import CUT, GRID, attack, crossed, drawn, report
from tests.tiny_models import random_samples

MEMBERSHIP = [
    (loss_attack, 0.95),
    (calibrated_attack, 0.85),  # subtracts a difficulty, which random labels do not have
    (shadow_attack, 0.95),
    (lira_attack, 0.95),
    (rmia_attack, 0.95),
]


@pytest.fixture(scope="module", params=[0, 150], ids=["fresh", "memorised"])
def signals(request) -> tuple[ShadowSignals, bool]:
    """Return what victim and shadows say, before any training and after far too much."""
    return signals_after(request.param, num_shadows=8), bool(request.param)


@pytest.mark.parametrize(("attack", "least"), MEMBERSHIP)
def test_memorised_random_labels_are_found_and_a_fresh_model_tells_nothing(
    attack, least, signals
) -> None:
    asked, memorised = signals
    found, again = attack(asked), attack(asked)
    assert np.array_equal(found.scores, again.scores)
    member = np.arange(2 * MEMBERS) < MEMBERS
    auc = next(r for r in attack_report(found.scores, member, resamples=200) if r.name == "auc")
    if memorised:
        assert auc.value > least
    else:
        assert auc.ci[0] <= 0.5 <= auc.ci[1]


def test_what_crossed_for_others_is_worth_less_than_no_look_at_all() -> None:
    auxiliary, private = drawn(200, 0), drawn(40, 1)
    fora = attack()
    fora.fit(crossed(auxiliary), auxiliary)
    seen = crossed(private)
    rows = seen.transcript.rows(CUT)
    shuffled = Transcript()
    shuffled.add(
        CUT,
        Kind.ACTIVATION,
        Direction.UP,
        rows[1:] + rows[:1],
        spans=seen.transcript.select(CUT)[0].spans,
    )
    right = report(fora, seen, private, auxiliary)
    wrong = report(fora, Observation(shuffled, CUT, seen.kept, GRID), private, auxiliary)
    assert right["psnr"] > 30
    assert wrong["psnr"] < wrong["floor_mean_image"]


def test_sizes_of_others_tell_nothing() -> None:
    samples = [
        replace(s, group_id=str(n), meta={"question_type": s.question})
        for n, s in enumerate(random_samples(120))
    ]
    kept = torch.tensor([len(sample.question) for sample in samples])
    text = torch.full((120,), 9)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    known = SideChannel(text[:60], kept[:60], text[:60] + kept[:60], None)
    for asked, leaks in ((kept[60:], True), (kept[60:][order], False)):
        figures = side_channel_report(
            samples[:60],
            known,
            samples[60:],
            SideChannel(text[60:], asked, text[60:] + asked, None),
            targets=["question_type"],
        )
        gain = next(r for r in figures if r.name == "question_type_from_kept_count_gain")
        assert (gain.ci[0] > 0.5) if leaks else (gain.ci[0] <= 0 <= gain.ci[1])
