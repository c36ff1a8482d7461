"""Scores of one answer, as pure functions that return a share in [0, 1]."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Literal

from rapidfuzz.distance import Levenshtein

from qpriv.datasets import normalisation

VQAMode = Literal["official", "official_2016", "always", "okvqa"]
ANLSVariant = Literal["rrc", "formula"]
SlakeMode = Literal["exact", "yes_no", "lmms_eval"]


def vqa_accuracy(prediction: str, answers: Sequence[str], mode: VQAMode = "official") -> float:
    """Return the VQA accuracy of a prediction against its (normally ten) human answers.

    Each answer in turn is left out, and the prediction earns a third for every other answer
    it equals, at most one; the score is the mean. One agreeing answer of ten thus gives 0.3,
    two 0.6, three 0.9, four or more 1.0. A single answer always scores 0, because leaving it
    out leaves none: score such sets with `closed_exact_match` and `open_recall`.

    Args:
        prediction: The model's answer.
        answers: The human answers; equal ones count by position, not by content.
        mode: ``official`` normalises both sides unless all answers are one string (the tool
            since 2021: ten times ``Yes`` against ``yes`` scores 0). ``official_2016`` always
            normalises the prediction, and strips only the punctuation of the answers.
            ``always`` normalises both sides always (lmms-eval and many trainers). ``okvqa``
            is EvalAI's processor on both sides.

    Raises:
        ValueError: If there is no answer to compare with.

    Source:
        Goyal et al., "Making the V in VQA Matter", CVPR 2017; GT-Vision-Lab/VQA, vqaEval.py.

    >>> round(vqa_accuracy("red", ["red"] * 3 + ["blue"] * 7), 3)
    0.9
    """
    if not answers:
        raise ValueError("no answers to compare with: a test split has no score")
    predicted, golds = _normalised(prediction, answers, mode)
    matches = [gold == predicted for gold in golds]
    others = (sum(matches) - match for match in matches)
    return sum(min(1.0, other / 3) for other in others) / len(matches)


def _normalised(prediction: str, answers: Sequence[str], mode: VQAMode) -> tuple[str, list[str]]:
    if mode == "okvqa":
        return normalisation.evalai(prediction), [normalisation.evalai(gold) for gold in answers]
    predicted = normalisation.blank_whitespace(prediction)
    if mode == "official_2016":
        golds = list(answers)
        if len(set(golds)) > 1:
            golds = [normalisation.strip_punctuation(gold) for gold in golds]
        return normalisation.vqa(predicted), golds
    golds = [normalisation.blank_whitespace(gold) for gold in answers]
    if mode == "official" and len(set(golds)) == 1:
        return predicted, golds
    python3 = mode == "always"
    golds = [normalisation.vqa(gold, python3=python3) for gold in golds]
    return normalisation.vqa(predicted, python3=python3), golds


def closed_exact_match(prediction: str, gold: str) -> float:
    """Return 1 if both are equal after LLaVA-Med's normalisation: the score of closed questions.

    The normalisation leaves nothing of ``A`` and ``the``, which are equal here; `closed_answer`
    tells them apart.

    >>> closed_exact_match("Yes.", "yes"), closed_exact_match("yes no", "yes")
    (1.0, 0.0)
    """
    return float(normalisation.llava_med(prediction) == normalisation.llava_med(gold))


def closed_answer(prediction: str, gold: str) -> float:
    """Return `closed_exact_match`; answers of which normalisation leaves nothing as they are written.

    >>> closed_answer("Yes.", "yes"), closed_answer("a", "A"), closed_answer("the", "A")
    (1.0, 1.0, 0.0)
    """
    return float(normalisation.same(prediction, gold))


def closed_first_word(prediction: str, gold: str) -> float:
    """Return 1 if the one of the whole words yes and no in a sentence is the gold answer.

    For models that answer closed questions in sentences. A sentence with both words, or with
    neither, scores 0 unless it equals the gold answer; ``know`` and ``normal`` are not no.

    >>> closed_first_word("Yes, there is a mass.", "yes"), closed_first_word("I don't know", "no")
    (1.0, 0.0)
    """
    said = {"yes", "no"} & set(re.findall(r"\w+", prediction.lower()))
    if len(said) == 2:
        return 0.0
    return closed_exact_match(said.pop() if said else prediction, gold)


def llava_med_closed(prediction: str, gold: str) -> float:
    """Return LLaVA-Med's closed score, for comparison with published figures only.

    The rule is: yes or no is a substring of the prediction, and so is the gold answer. Its
    known defects: "yes no" beats every model; "I do not know", "normal" and "nodule" count as
    no; a closed question that is not yes/no (``left``, ``MRI``) cannot score. On the test sets:

    ========================  ===========  ======  =======  ===============
    closed accuracy in %      gold answer  "yes"   "yes no"  "I do not know"
    ========================  ===========  ======  =======  ===============
    VQA-RAD (272 closed)            93.38   43.38    92.28            48.90
    SLAKE English (416)             85.34   42.07    85.34            43.27
    SLAKE Chinese (420)              0.00    0.00     0.00             0.00
    PathVQA (3391)                 100.00   54.38   100.00            45.62
    ========================  ===========  ======  =======  ===============

    Source:
        microsoft/LLaVA-Med v1.0.0, llava/eval/run_eval.py.

    >>> llava_med_closed("I do not know", "no"), llava_med_closed("left", "left")
    (1.0, 0.0)
    """
    predicted, expected = normalisation.llava_med(prediction), normalisation.llava_med(gold)
    return float(("yes" in predicted or "no" in predicted) and expected in predicted)


def open_recall(prediction: str, gold: str) -> float:
    """Return the word recall of LLaVA-Med: the score of open questions.

    True positives are counted in the prediction: a word that the prediction repeats counts
    each time, one that the gold answer repeats does not.

    Source:
        microsoft/LLaVA-Med v1.0.0, llava/eval/eval_metrics/evaluate_metrics.py.

    >>> open_recall("lung", "right lung")
    0.5
    """
    said = Counter(normalisation.llava_med(prediction).split())
    due = Counter(normalisation.llava_med(gold).split())
    found = sum(count for word, count in said.items() if word in due)
    missed = sum(count for word, count in due.items() if word not in said)
    return found / (found + missed) if found else 0.0


def open_answer(prediction: str, gold: str) -> float:
    """Return `open_recall`; `closed_answer` where normalisation leaves nothing of the gold answer.

    >>> open_answer("right lung", "lung"), open_answer("A", "A"), open_answer("B", "A")
    (1.0, 1.0, 0.0)
    """
    if normalisation.says_nothing(gold):
        return closed_answer(prediction, gold)
    return open_recall(prediction, gold)


def gqa_accuracy(prediction: str, gold: str, strict: bool = False) -> float:
    """Return whether the answer to a GQA question is right.

    Args:
        prediction: The model's answer.
        gold: The gold answer.
        strict: Compare the raw strings, as Stanford's eval.py does; otherwise case, blanks
            around and final full stops do not matter.

    >>> gqa_accuracy("Yes.", "yes"), gqa_accuracy("Yes.", "yes", strict=True)
    (1.0, 0.0)
    """
    if strict:
        return float(prediction == gold)
    return float(normalisation.same(prediction, gold, normalisation.gqa))


def slake_match(
    prediction: str, gold: str, lang: Literal["en", "zh"] = "en", mode: SlakeMode = "exact"
) -> float:
    """Return whether an answer of SLAKE is right, in English or Chinese.

    Args:
        prediction: The model's answer.
        gold: The gold answer.
        lang: Language of the question. English answers are compared by `closed_exact_match`.
        mode: ``exact`` compares in one width, without final punctuation, enumerations as sets.
            ``yes_no`` also folds the Chinese words for yes (是的, 有, 包含, 存在, ...) and for no.
            ``lmms_eval`` is lmms-eval's rule for both languages, in which 正常 (normal) is yes.

    >>> slake_match("肝脏、肺", "肺、肝脏", lang="zh"), slake_match("存在", "有", "zh", mode="yes_no")
    (1.0, 1.0)
    """
    if mode == "lmms_eval":
        return float(normalisation.lmms_slake(prediction) == normalisation.lmms_slake(gold))
    if lang == "en":
        return closed_exact_match(prediction, gold)
    rule = partial(normalisation.chinese, fold_yes_no=mode == "yes_no")
    return float(normalisation.same(prediction, gold, rule))


def anls(
    prediction: str,
    answers: Sequence[str],
    variant: ANLSVariant = "rrc",
    threshold: float = 0.5,
) -> float:
    """Return the average normalised Levenshtein similarity of one question.

    The best similarity over the answers, case ignored and white space collapsed, or 0 where
    it is too small.

    Args:
        prediction: The model's answer.
        answers: The accepted answers.
        variant: ``rrc`` is the script of the Robust Reading Competition: the distance is
            divided by the longer of the *raw* strings, and a similarity of exactly
            ``threshold`` is kept. ``formula`` is the equation of the paper: divided by the
            longer of the compared strings, and a distance of exactly ``threshold`` gives 0.
        threshold: Where a similarity stops to count.

    Raises:
        ValueError: If there is no answer to compare with.

    Source:
        Biten et al., "Scene Text Visual Question Answering", ICCV 2019, equation 1.

    >>> anls("ac", ["ab"]), anls("ac", ["ab"], variant="formula")
    (0.5, 0.0)
    """
    if not answers:
        raise ValueError("no answers to compare with: a test split has no score")
    distance = min(_normalised_distance(prediction, gold, variant) for gold in answers)
    similarity = 1 - distance
    kept = similarity >= threshold if variant == "rrc" else distance < threshold
    return similarity if kept else 0.0


def _normalised_distance(prediction: str, gold: str, variant: ANLSVariant) -> float:
    said, due = (" ".join(text.lower().split()) for text in (prediction, gold))
    # the script measures the length in upper case, in which "ß" is two letters
    pair = (prediction.upper(), gold.upper()) if variant == "rrc" else (said, due)
    length = max(map(len, pair))
    return Levenshtein.distance(said, due) / length if length else 0.0
