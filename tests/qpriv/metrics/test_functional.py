"""Hand-made cases for each rule of the official evaluators, with the score each gives."""

import pytest

from qpriv.datasets.normalisation import CONTRACTIONS, strip_punctuation
from qpriv.metrics.functional import (
    anls,
    closed_answer,
    closed_exact_match,
    closed_first_word,
    gqa_accuracy,
    llava_med_closed,
    open_answer,
    open_recall,
    slake_match,
    vqa_accuracy,
)

MODES = ("official", "official_2016", "always", "okvqa")
TEN = ["blue"] * 9 + ["green"]


def split(one, other="unrelated"):
    """Return nine answers of one kind and another, so that they are not unanimous."""
    return [one] * 9 + [other]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("agreeing", "score"), [(0, 0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1), (9, 1), (10, 1)]
)
def test_leaving_one_out_makes_ninety_of_three(mode, agreeing, score):
    answers = ["red"] * agreeing + [f"other{number}" for number in range(10 - agreeing)]
    assert vqa_accuracy("red", answers, mode) == pytest.approx(score)


@pytest.mark.parametrize(("number", "score"), [(1, 0), (2, 1 / 3), (3, 2 / 3), (4, 1), (7, 1)])
def test_fewer_answers_than_ten_leave_one_out_too(number, score):
    assert vqa_accuracy("yes", ["yes"] * number) == pytest.approx(score)


def test_equal_answers_count_by_position():
    assert vqa_accuracy("yes", ["yes"] * 6 + ["no"] * 4) == 1.0
    assert vqa_accuracy("no", ["yes"] * 7 + ["no"] * 3) == pytest.approx(0.9)


# prediction, answers, and the scores of the four modes
CASES = {
    "unanimous answers are not normalised": ("yes", ["Yes"] * 10, (0, 0, 1, 1)),
    "unanimous number words": ("2", ["two"] * 10, (0, 0, 1, 1)),
    "gold number word": ("2", split("two"), (1, 0, 1, 1)),
    "prediction number word": ("Two", split("2"), (1, 1, 1, 1)),
    "none is zero": ("none", split("0"), (1, 1, 1, 1)),
    "gold article": ("dog", split("a dog"), (1, 0, 1, 1)),
    "prediction article": ("the dog", split("dog"), (1, 1, 1, 1)),
    "capitals of the gold": ("dog", split("Dog"), (1, 0, 1, 1)),
    "mark inside a word is a blank": ("t shirt", split("t-shirt"), (1, 1, 1, 1)),
    "mark beside a blank goes": ("tshirt", split("t- shirt"), (0, 0, 0, 0)),
    "thousands delete every mark": ("1000 tshirts", split("1,000 t-shirts"), (1, 1, 1, 0)),
    "stop at the end": ("black", split("black."), (1, 1, 1, 1)),
    "stop before a digit stays": ("5", split(".5"), (0, 0, 0, 0)),
    "stop after a digit goes": ("5", split("5."), (1, 1, 1, 1)),
    "restored apostrophe": ("dont know", split("don't know"), (1, 1, 1, 1)),
    "lets is left alone": ("lets", split("let's"), (0, 0, 0, 0)),
    "the slip of the table": ("somebody'd", split("somebodyd"), (1, 1, 1, 1)),
    "apostrophes stay": ("dogs", split("dog's"), (0, 0, 0, 0)),
    "colon stays": ("10 30", split("10:30"), (0, 0, 0, 0)),
    "newline of the gold": ("a b c", split("b\nc"), (1, 0, 1, 1)),
    "blanks around": (" blue \t", TEN, (1, 1, 1, 1)),
    "comma without a blank": ("yes it is", split("yes,it is"), (1, 1, 1, 0)),
    "decimal comma": ("15", split("1,5"), (1, 1, 1, 1)),
    "other digits": ("\u0663\u0664", split("\u0663,\u0664"), (0, 0, 1, 1)),
    "sentence": ("it is blue", TEN, (0, 0, 0, 0)),
    "empty prediction": ("", TEN, (0, 0, 0, 0)),
    "empty golds are an answer": ("", split("."), (1, 1, 1, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_vqa_modes(case):
    prediction, answers, scores = CASES[case]
    given = list(answers)
    found = [round(vqa_accuracy(prediction, given, mode), 6) for mode in MODES]
    assert found == list(scores)
    # pure: the same call twice gives the same value, and the answers stay as they were
    assert [round(vqa_accuracy(prediction, given, mode), 6) for mode in MODES] == found
    assert given == answers


def test_a_test_split_has_no_score():
    with pytest.raises(ValueError, match="test split"):
        vqa_accuracy("yes", [])
    with pytest.raises(ValueError, match="test split"):
        anls("yes", [])


def test_contractions_have_as_many_entries_as_can_match():
    assert len(CONTRACTIONS) == 114
    assert CONTRACTIONS["ow's'at"] == CONTRACTIONS["'ows'at"] == "'ow's'at"
    assert CONTRACTIONS["yall'd've"] == "y'all'd've"
    assert not {"im", "ive", "ill", "well", "lets", "shes", "couldntve"} & set(CONTRACTIONS)


def test_only_the_first_thirty_two_stops_go():
    assert strip_punctuation("." * 40) == "." * 8


@pytest.mark.parametrize(
    ("prediction", "gold", "exact", "first_word", "llava_med"),
    [
        ("Yes", "yes", 1, 1, 1),
        ("yes no", "yes", 0, 0, 1),
        ("yes no", "no", 0, 0, 1),
        ("I do not know", "no", 0, 0, 1),
        ("nodule", "no", 0, 0, 1),
        ("No, it is not.", "no", 0, 1, 1),
        ("left", "Left.", 1, 1, 0),
        ("", "yes", 0, 0, 0),
        ("none", "no", 0, 0, 0),
        ("是的", "是的", 1, 1, 0),
        ("abnormal", "abnormal", 1, 1, 1),
    ],
)
def test_closed_scores(prediction, gold, exact, first_word, llava_med):
    assert closed_exact_match(prediction, gold) == exact
    assert closed_first_word(prediction, gold) == first_word
    assert llava_med_closed(prediction, gold) == llava_med


@pytest.mark.parametrize(
    ("prediction", "gold", "score"),
    [
        ("the right lung", "right lung", 1),
        ("lung", "right lung", 1 / 2),
        ("", "lung", 0),
        ("lung", "", 0),
        ("right right right", "right lower lobe", 3 / 5),  # repeats of the prediction count
        ("lung", "lung lung lung heart", 1 / 2),  # those of the gold answer do not
        ("chest x ray", "Chest X-Ray", 1),
        ("4,5 cm", "45 cm", 1),
    ],
)
def test_open_recall(prediction, gold, score):
    assert open_recall(prediction, gold) == pytest.approx(score)


@pytest.mark.parametrize(
    ("prediction", "strict", "lenient"),
    [
        ("yes", 1, 1),
        ("Yes", 0, 1),
        ("yes.", 0, 1),
        (" yes", 0, 1),
        ("Yes. ", 0, 1),
        ("yes it", 0, 0),
    ],
)
def test_gqa(prediction, strict, lenient):
    assert gqa_accuracy(prediction, "yes", strict=True) == strict
    assert gqa_accuracy(prediction, "yes") == lenient


@pytest.mark.parametrize(
    ("prediction", "gold", "exact", "yes_no", "lmms_eval"),
    [
        ("肝脏。", "肝脏", 1, 1, 1),
        ("肺\uff0c肝脏", "肝脏、肺", 1, 1, 0),
        ("\uff2d\uff32\uff29", "MRI", 1, 1, 0),
        ("存在", "有", 0, 1, 0),
        ("是", "包含", 0, 1, 1),
        ("不包含", "没有", 0, 1, 1),
        ("正常", "是的", 0, 0, 1),
        ("异常", "不是", 0, 0, 1),
        ("右肺\uff08上叶\uff09", "右肺", 0, 0, 1),
        ("", "肝脏", 0, 0, 0),
    ],
)
def test_slake_in_chinese(prediction, gold, exact, yes_no, lmms_eval):
    assert slake_match(prediction, gold, "zh") == exact
    assert slake_match(prediction, gold, "zh", mode="yes_no") == yes_no
    assert slake_match(prediction, gold, "zh", mode="lmms_eval") == lmms_eval


def test_slake_in_english_is_exact_match_and_lmms_eval_keeps_articles():
    assert slake_match("the chest", "Chest") == 1
    assert slake_match("the chest", "Chest", mode="lmms_eval") == 0
    assert slake_match("xray", "X-Ray", mode="lmms_eval") == 1


@pytest.mark.parametrize(
    ("prediction", "answers", "rrc", "formula"),
    [
        ("ac", ["ab"], 0.5, 0),
        ("abxx", ["abcd"], 0.5, 0),
        ("1/8/1993", ["1/8/93"], 0.75, 0.75),
        ("23 Sep 1970 ", ["23 sep 1970"], 1, 1),
        ("rjr", ["R. J. Reynolds", "RJR"], 1, 1),
        ("100%", ["96%"], 0, 0),
        ("Don't", ["Won't"], 0.8, 0.8),
        ("none", ["none"], 1, 1),
        ("", [""], 1, 1),
        ("", ["ab"], 0, 0),
        (" a   c ", ["a b"], 6 / 7, 2 / 3),
    ],
)
def test_anls(prediction, answers, rrc, formula):
    assert anls(prediction, answers) == pytest.approx(rrc)
    assert anls(prediction, answers, variant="formula") == pytest.approx(formula)


@pytest.mark.parametrize("gold", ["A", "the", "An", "?", ".", "a.", "-"])
@pytest.mark.parametrize("prediction", ["", "A", "the", "an", "B", "a b", "?", ".", "-", "a mass"])
def test_a_gold_answer_of_which_nothing_is_left_scores_right(prediction, gold):
    right = prediction.lower() == (gold.lower().rstrip(".") or gold)
    assert closed_answer(prediction, gold) == open_answer(prediction, gold) == right
    assert open_answer(gold, gold) == closed_answer(gold.lower(), gold) == 1


@pytest.mark.parametrize("answer", ["。", "、", "《》"])
def test_chinese_answers_of_which_nothing_is_left_are_compared_as_written(answer):
    assert slake_match(answer, answer, "zh") == 1
    assert slake_match("", answer, "zh") == 0
    assert gqa_accuracy(".", ".") == 1 and gqa_accuracy("", ".") == 0


def test_the_rules_of_published_evaluators_do_not_change_for_empty_golds():
    assert closed_exact_match("the", "a") == 1
    assert open_recall("a", "A") == 0
    assert llava_med_closed("no", "a") == 1
    assert vqa_accuracy("the", ["A"] * 6 + ["B"] * 4) == 1
    assert slake_match("", "?", "zh", mode="lmms_eval") == 1
