import numpy as np
import pytest
import torch

from qpriv.datasets.sample import AnswerType, ArrayImage, VQASample
from qpriv.metrics import (
    ANLS,
    AnswerScores,
    ClosedExactMatch,
    ClosedFirstWord,
    GQAAccuracy,
    LlavaMedClosed,
    OpenRecall,
    SlakeMatch,
    VQAAccuracy,
    score_sample,
)

CLOSED, OPEN = AnswerType.CLOSED, AnswerType.OPEN


def sample(answer, kind=OPEN, answers=None, lang="en", question_type="what"):
    return VQASample(
        dataset="Doc", split="test", qid="1", image_id="1", group_id="1",
        image=ArrayImage(np.zeros((1, 1, 3), np.uint8)), question="?", answer=answer,
        answers=tuple(answers or ([answer] if answer else [])), answer_type=kind, lang=lang,
        meta={"question_type": question_type},
    )  # fmt: skip


PREDICTIONS = ["yes", "lung", "no", "the liver", "3"]
ANSWERS = [["yes"] * 9 + ["no"], ["right lung"], ["yes", "no"], ["liver"], ["3", "3", "4"]]


@pytest.mark.parametrize(
    "metric",
    [
        VQAAccuracy(),
        VQAAccuracy("okvqa"),
        ClosedExactMatch(),
        ClosedFirstWord(),
        LlavaMedClosed(),
        OpenRecall(),
        GQAAccuracy(strict=True),
        SlakeMatch("zh"),
        ANLS("formula"),
    ],
    ids=lambda metric: type(metric).__name__,
)
def test_metrics_are_means_and_two_devices_make_one(metric):
    scores = [metric.score(p, a) for p, a in zip(PREDICTIONS, ANSWERS, strict=True)]
    whole = metric.clone()
    whole.update(PREDICTIONS, ANSWERS)
    assert whole.compute().item() == pytest.approx(np.mean(scores))
    one, other = metric.clone(), metric.clone()
    one.update(PREDICTIONS[:2], ANSWERS[:2])
    other.update(PREDICTIONS[2:], ANSWERS[2:])
    assert as_of_two(one, other).compute().item() == whole.compute().item()


def as_of_two(one, other):
    """Let a metric gather its states from another, as processes do from each other."""
    states = iter([getattr(other, name) for name in one._defaults])
    one.distributed_available_fn = lambda: True
    one.dist_sync_fn = lambda tensor, group: [tensor, next(states)]
    return one


def test_total_is_the_mean_of_closed_and_open_weighted_by_their_numbers():
    samples = [
        sample("yes", CLOSED, question_type="is"),
        sample("left", CLOSED, question_type="where"),
        sample("right lung"),
        sample("liver"),
        sample("heart"),
        sample("", OPEN),
    ]
    scores = AnswerScores("medical", question_types=["is", "never asked"])
    scores.update(["yes", "right", "lung", "liver", "x", "y"], samples)
    found = {key: value.item() for key, value in scores.compute().items()}
    assert found == {
        "accuracy_medical": pytest.approx(2.5 / 5),
        "accuracy_medical/closed": pytest.approx(1 / 2),
        "accuracy_medical/open": pytest.approx(1.5 / 3),
        "accuracy_medical/is": 1.0,
    }
    closed, opened = found["accuracy_medical/closed"], found["accuracy_medical/open"]
    assert found["accuracy_medical"] == pytest.approx((2 * closed + 3 * opened) / 5)
    assert scores.without_gold.item() == 1


def test_the_rule_stands_in_the_key():
    for rule in ("official", "official_2016", "always", "okvqa", "gqa", "gqa_strict", "exact"):
        scores = AnswerScores(rule)
        scores.update(["x"], [sample("x", answers=["x"] * 10)])
        assert f"accuracy_{rule}" in scores.compute()


def test_answer_scores_of_two_devices_make_one():
    samples = [sample("yes", CLOSED), sample("lung"), sample("liver", CLOSED)]
    whole, one, other = (AnswerScores("medical") for _ in range(3))
    whole.update(["yes", "x", "liver"], samples)
    one.update(["yes"], samples[:1])
    other.update(["x", "liver"], samples[1:])
    assert as_of_two(one, other).compute() == whole.compute()


@pytest.mark.parametrize(
    ("rule", "prediction", "golden", "score"),
    [
        ("medical", "yes no", sample("yes", CLOSED), 0),
        ("llava_med", "yes no", sample("yes", CLOSED), 1),
        ("medical", "肝脏。", sample("肝脏", lang="zh"), 1),
        ("medical", "lung", sample("right lung"), 0.5),
        ("gqa", "Yes.", sample("yes"), 1),
        ("gqa_strict", "Yes.", sample("yes"), 0),
        ("official", "red", sample("red", answers=["red"] * 3 + ["blue"] * 7), 0.9),
        ("exact", "The red", sample("red"), 1),
    ],
)
def test_rules(rule, prediction, golden, score):
    assert score_sample(prediction, golden, rule) == pytest.approx(score)


def test_a_sample_without_gold_has_no_score():
    with pytest.raises(ValueError, match="Doc/test/1 has no gold"):
        score_sample("yes", sample(""), "exact")


def test_an_empty_metric_is_not_a_number():
    with pytest.warns(UserWarning, match="compute"):
        assert torch.isnan(ClosedExactMatch().compute())


@pytest.mark.parametrize("rule", ["medical", "exact"])
@pytest.mark.parametrize("kind", [OPEN, CLOSED])
def test_letters_that_are_articles_score_like_other_letters(rule, kind):
    for gold in "ABan":
        for said in ("A", "B", "an", "n", "", "the"):
            right = said.lower() == gold.lower()
            assert score_sample(said, sample(gold, kind), rule) == right, (said, gold)


def test_answers_of_which_nothing_is_left_are_counted():
    scores = AnswerScores("medical")
    scores.update(["A", "the", "B", "."], [sample(gold) for gold in ("A", "B", "B", "")])
    assert (scores.empty_golds.item(), scores.empty_predictions.item()) == (1, 2)
    assert scores.compute()["accuracy_medical"].item() == pytest.approx(2 / 3)
