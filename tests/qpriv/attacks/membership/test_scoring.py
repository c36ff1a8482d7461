"""A small classifier that memorises random labels, and one that was never trained."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from qpriv.attacks.membership.blind import blind_scores
from qpriv.attacks.membership.scoring import (
    ShadowSignals,
    calibrated_attack,
    draw_shadow_set,
    loss_attack,
    shadow_attack,
)
from qpriv.attacks.membership.shadows import Shadow
from qpriv.attacks.query import Replies
from qpriv.datasets.sample import ArrayImage, VQASample
from qpriv.metrics.membership import attack_report
from tests.tiny_models import random_samples

MEMBERS, CLASSES, SHADOWS = 60, 8, 4
ATTACKS = [(loss_attack, 0.95), (calibrated_attack, 0.8), (shadow_attack, 0.95)]


def replies(model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> Replies:
    with torch.no_grad():
        log_probs = model(inputs).log_softmax(dim=1)
    gold = log_probs.gather(1, labels[:, None])[:, 0].double().numpy()
    confidence = log_probs.max(1).values.exp().double().numpy()
    entropy = torch.special.entr(log_probs.exp()).sum(1).double().numpy()
    correct = (log_probs.argmax(1) == labels).double().numpy()
    return Replies(gold, gold, confidence, entropy, correct)


def trained(inputs: torch.Tensor, labels: torch.Tensor, steps: int, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES)
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def signals_after(steps: int, num_shadows: int) -> ShadowSignals:
    """Return what a victim and its shadows say that memorised random labels for so many steps."""
    generator = torch.Generator().manual_seed(0)
    count = 2 * MEMBERS + 4 * MEMBERS
    inputs = torch.randn(count, 32, generator=generator)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    victim = trained(inputs[:MEMBERS], labels[:MEMBERS], steps, seed=1)
    shadows, inside = [], np.zeros((num_shadows, count), dtype=bool)
    for number in range(num_shadows):
        rows = 2 * MEMBERS + torch.randperm(4 * MEMBERS, generator=generator)[:MEMBERS]
        inside[number, rows] = True
        model = trained(inputs[rows], labels[rows], steps, seed=2 + number)
        shadows.append(replies(model, inputs, labels))
    asked = replies(victim, inputs[: 2 * MEMBERS], labels[: 2 * MEMBERS])
    return ShadowSignals(asked, tuple(shadows), inside)


@pytest.fixture(scope="module", params=[0, 60], ids=["fresh", "memorised"])
def study(request: pytest.FixtureRequest) -> tuple[ShadowSignals, bool]:
    return signals_after(request.param, SHADOWS), bool(request.param)


@pytest.mark.parametrize(("attack", "least"), ATTACKS)
def test_memorised_labels_are_found_and_a_fresh_model_tells_nothing(
    attack, least: float, study: tuple[ShadowSignals, bool]
) -> None:
    signals, memorised = study
    found = attack(signals)
    member = np.arange(2 * MEMBERS) < MEMBERS
    report = {r.name: r for r in attack_report(found.scores, member, threshold=found.threshold)}
    if memorised:
        assert report["auc"].value > least
        assert report["balanced_accuracy"].value > least - 0.1
        assert report["balanced_accuracy"].value <= report["balanced_accuracy_best"].value
    else:
        low, high = report["auc"].ci
        assert low <= 0.5 <= high


def test_calibration_uses_only_shadows_that_never_saw_the_sample(
    study: tuple[ShadowSignals, bool],
) -> None:
    signals, _ = study
    for without in (None, 1):
        ours = signals.outside_mean(without)
        for column in (0, 2 * MEMBERS + 5, 2 * MEMBERS + 77):
            values = [
                signals.shadows[s].mean_log_prob[column]
                for s in range(SHADOWS)
                if not signals.inside[s, column] and s != without
            ]
            assert np.isclose(ours[column], np.mean(values)) if values else np.isnan(ours[column])


def test_shadow_survives_its_file(study: tuple[ShadowSignals, bool]) -> None:
    signals, _ = study
    shadow = Shadow(
        signals.inside[0], {("same", 0): signals.shadows[0], ("off", 11): signals.shadows[1]}
    )
    back = Shadow.from_bytes(shadow.to_bytes())
    assert np.array_equal(back.inside, shadow.inside)
    assert set(back.replies) == set(shadow.replies)
    for key, replies in shadow.replies.items():
        assert np.array_equal(back.replies[key].columns(), replies.columns())


def test_shadow_sets_have_the_victims_size_whole_groups_and_every_kind() -> None:
    population = [
        replace(s, group_id=str(n // 2), meta={"question_type": "ab"[n // 2 % 2]})
        for n, s in enumerate(random_samples(80))
    ]
    rows = draw_shadow_set(population, population[:20], seed=3)
    assert len(rows) == 20 and rows == sorted(set(rows))
    groups = [population[row].group_id for row in rows]
    assert all(groups.count(group) == 2 for group in groups)
    kinds = [population[row].meta["question_type"] for row in rows]
    assert abs(kinds.count("a") - 10) <= 2
    assert rows != draw_shadow_set(population, population[:20], seed=4)
    with pytest.raises(ValueError, match="twice as many"):
        draw_shadow_set(population[:30], population[:20], seed=3)


def brighter(sample: VQASample) -> VQASample:
    pixels = np.asarray(sample.image.load()) // 2 + 120
    return replace(sample, image=ArrayImage(pixels.astype(np.uint8)))


def test_blind_baseline_flags_a_shifted_split_and_passes_a_random_one() -> None:
    samples = random_samples(160)
    member = np.arange(160) < 80

    def auc(members: list[VQASample], others: list[VQASample]) -> tuple[float, float]:
        report = attack_report(blind_scores(members, others), member)
        return next(r.ci for r in report if r.name == "auc")  # type: ignore[return-value]

    low, high = auc(samples[:80], samples[80:])
    assert low <= 0.5 <= high
    assert auc([brighter(s) for s in samples[:80]], samples[80:])[0] > 0.9
    assert auc([replace(s, answer="maybe") for s in samples[:80]], samples[80:])[0] > 0.9
