"""What activations tell beyond the question, and a probe on shuffled labels that tells nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from qpriv.attacks.attributes import Evidence, attribute_report, pooled
from qpriv.split import Direction, Kind, Transcript
from tests.tiny_models import random_samples


def evidence(count: int, seed: int, signal: float) -> Evidence:
    """Return samples with a face by the toss of a coin, which activations show by ``signal``."""
    generator = np.random.default_rng(seed)
    coin = generator.random(count) < 0.5
    samples = [
        replace(
            sample,
            group_id=f"{seed}-{number}",
            sensitive_boxes=((0, 0, 8, 8),) if coin[number] else (),
            meta={"question_type": sample.question},
        )
        for number, sample in enumerate(random_samples(count, seed=seed))
    ]
    activations = generator.normal(size=(count, 12))
    activations[:, 3] += signal * coin
    return Evidence(samples, activations)


@pytest.fixture(scope="module", params=[4.0, 0.0], ids=["told", "hidden"])
def faces(request):
    signal = request.param
    report = attribute_report("sensitive", evidence(120, 0, signal), evidence(80, 1, signal))
    return signal, {figure.name: figure for figure in report}


def test_faces_are_found_where_activations_show_them_and_only_there(faces) -> None:
    signal, found = faces
    low, high = found["sensitive_gain_over_question"].ci
    if signal:
        assert found["sensitive_accuracy"].value > 0.85 and low > 0.1
        assert found["sensitive_balanced_accuracy"].ci[0] > 0.7
    else:
        assert low <= 0 <= high


def test_control_on_shuffled_labels_ends_at_chance(faces) -> None:
    _, found = faces
    control = found["sensitive_shuffled_balanced_accuracy"]
    assert control.attack["chance"] == 0.5
    assert control.ci[0] <= 0.5 <= control.ci[1]


def test_every_figure_stands_beside_its_baselines(faces) -> None:
    _, found = faces
    for name in ("sensitive", "sensitive_from_question", "sensitive_from_question_and_answer"):
        for suffix in ("accuracy", "majority", "gain", "balanced_accuracy"):
            assert found[f"{name}_{suffix}"].ci is not None


def test_a_question_gives_its_type_away_without_any_activation() -> None:
    known, private = evidence(60, 2, 0.0), evidence(40, 3, 0.0)
    found = {r.name: r for r in attribute_report("question_type", known, private)}
    assert found["question_type_from_question_accuracy"].value == 1.0
    assert found["question_type_gain_over_question"].value < -0.3


def test_an_answer_is_no_baseline_for_itself_and_the_attack_is_repeatable() -> None:
    known, private = evidence(40, 4, 0.0), evidence(30, 5, 0.0)
    first, second = (attribute_report("answer", known, private, seed=1) for _ in range(2))
    assert first == second
    assert not any("question_and_answer" in figure.name for figure in first)


def test_what_cannot_be_told_gets_no_figure() -> None:
    known, private = evidence(40, 6, 0.0), evidence(30, 7, 0.0)
    unknown = Evidence([replace(s, sensitive_boxes=None) for s in known.samples], known.activations)
    (figure,) = attribute_report("sensitive", unknown, private)
    assert figure.status == "not applicable" and "no sensitive" in figure.note
    few = Evidence(known.samples[:20], known.activations[:20])
    (figure,) = attribute_report("answer", few, private)
    assert "20 samples" in figure.note


def test_pooling_is_what_a_loop_pools() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(length, 5, generator=generator) for length in (9, 6)]
    spans = [(2, 7), (2, 2)]  # the second one has no image token
    transcript = Transcript()
    transcript.add(1, Kind.ACTIVATION, Direction.UP, rows, spans=spans)
    found = pooled(transcript, 1)
    assert found.shape == (2, 17)
    assert np.allclose(found[0, :5], rows[0][2:7].mean(0))
    assert np.allclose(found[0, 5:10], rows[0][2:7].amax(0))
    assert np.allclose(found[0, 10:15], rows[0][7:].mean(0))
    assert found[0, 15:].tolist() == [5, 2] and found[1, 15:].tolist() == [0, 4]
    assert not found[1, :10].any()
