"""Questions without an answer: what is asked, what counts as a refusal, and how it is counted."""

import json
from dataclasses import replace

import pytest
import torch

from qpriv.attacks.irrelevant_questions import (
    KINDS,
    RefusalSet,
    answer_report,
    ask,
    irrelevant,
    load_phrases,
    privacy_subset,
)
from qpriv.attacks.query import QueryAccess
from qpriv.errors import DataError
from qpriv.metrics.intervals import wilson_interval
from qpriv.pruning.baselines import RandomPruning
from tests.tiny_models import random_model, random_samples

PHRASES = load_phrases()
SHIPPED = RefusalSet([phrase for own in PHRASES.values() for phrase in own.refusals])


@pytest.mark.parametrize(
    "answer",
    [
        "I don't know.",
        "i dont know",
        "Sorry, that is NOT VISIBLE here",
        "It can\u2019t be determined from the image!",
        "n. Unknown",
        "我不知道。",
        "图中没有火山",
        "这个问题 无法 回答",
    ],
)
def test_refusals_are_found_as_whole_phrases(answer: str) -> None:
    assert SHIPPED.found(answer)


@pytest.mark.parametrize(
    "answer",
    ["", "red", "unknowns", "no", "knowing", "yes , two", "a sorrygram", "notsure", "红色", "知道"],
)
def test_parts_of_words_and_plain_answers_are_no_refusals(answer: str) -> None:
    assert not SHIPPED.found(answer)


def test_matching_equals_a_plain_search_over_words() -> None:
    phrases = ["can not tell", "unclear", "no answer"]
    texts = ["unclear", "it is unclear !", "no answers", "i can not tell you", "can tell not", "x"]
    for text in texts:
        words = text.replace("!", "").split()
        slow = any(
            words[start : start + len(phrase.split())] == phrase.split()
            for phrase in phrases
            for start in range(len(words))
        )
        assert RefusalSet(phrases).found(text) == slow


def test_every_shipped_phrase_is_found_and_no_question_is_a_refusal() -> None:
    for own in PHRASES.values():
        assert all(SHIPPED.found(f"well , {phrase} .") for phrase in own.refusals)
        assert not any(SHIPPED.found(question) for question in own.nonsense)
        assert all("{thing}" in premise for premise in own.premises)


SAMPLES = [
    replace(sample, lang="zh" if number % 5 == 0 else "en")
    for number, sample in enumerate(random_samples(20))
]


class TestQuestions:
    def test_another_images_question_is_none_of_this_images(self) -> None:
        pairs = [replace(s, group_id=str(n // 2)) for n, s in enumerate(SAMPLES)]
        asked = irrelevant("cross_image", pairs, PHRASES)
        own = {s.group_id: {t.question for t in pairs if t.group_id == s.group_id} for s in pairs}
        for sample in asked:
            assert sample.question not in own[sample.group_id]
            donors = [s for s in pairs if s.question == sample.question]
            assert any(s.lang == sample.lang for s in donors)

    def test_false_premises_speak_of_nothing_the_data_set_speaks_of(self) -> None:
        spoken = [
            replace(s, question="is the polar bear near the red windmill ?", lang="en")
            for s in SAMPLES
        ]
        asked = {s.question for s in irrelevant("false_premise", spoken, PHRASES)}
        assert len(asked) > 5
        assert not any(word in question for question in asked for word in ("bear", "windmill"))
        assert not any("{" in question for question in asked)
        named = replace(spoken[0], answer=" ".join(PHRASES["en"].things), answers=())
        named = replace(named, answers=(named.answer,))
        with pytest.raises(DataError, match="every thing"):
            irrelevant("false_premise", [named], PHRASES)

    @pytest.mark.parametrize("kind", KINDS)
    def test_questions_follow_language_and_seed_and_keep_the_key(self, kind: str) -> None:
        first, again, other = (irrelevant(kind, SAMPLES, PHRASES, seed) for seed in (0, 0, 1))
        assert first == again
        assert (first == other) == (kind == "own")
        assert [s.key for s in first] == [s.key for s in SAMPLES]
        if kind in ("nonsense", "false_premise"):
            chinese = [any("\u4e00" <= c <= "\u9fff" for c in s.question) for s in first]
            assert chinese == [s.lang == "zh" for s in first]

    def test_unknown_languages_and_lonely_images_are_refused(self) -> None:
        with pytest.raises(DataError, match="'fi'"):
            irrelevant("nonsense", [replace(SAMPLES[0], lang="fi")], PHRASES)
        with pytest.raises(DataError, match="no other image"):
            irrelevant("cross_image", SAMPLES[:1], PHRASES)


def test_rates_are_counted_and_add_up() -> None:
    answers = ["red", "I don't know", "", "  ", "blue , i am not sure", "two"]
    found = {r.name: r for r in answer_report("nonsense", answers, SHIPPED)}
    assert {name: r.value for name, r in found.items()} == {
        "nonsense_refusal_rate": pytest.approx(2 / 6),
        "nonsense_empty_rate": pytest.approx(2 / 6),
        "nonsense_hallucination_rate": pytest.approx(2 / 6),
    }
    assert found["nonsense_refusal_rate"].ci == wilson_interval(2, 6)
    own = {r.name for r in answer_report("own", answers, SHIPPED)}
    assert own == {"own_refusal_rate", "own_empty_rate"}  # a right answer is no hallucination


def test_privacy_subset_is_the_top_by_maximum() -> None:
    patches = torch.rand(30, 9, generator=torch.Generator().manual_seed(0))
    rows = privacy_subset(patches.amax(dim=1), 7)
    slow = sorted(range(30), key=lambda row: (-patches[row].max(), row))[:7]
    assert rows.tolist() == sorted(slow)
    assert privacy_subset(torch.rand(3), 9).tolist() == [0, 1, 2]


def test_asking_counts_queries_and_keeps_what_was_decided() -> None:
    model, samples = random_model(), random_samples(6)
    access = QueryAccess(model, RandomPruning(0.5), batch_size=4)
    asked = ask(access, samples, max_new_tokens=2)
    assert access.count == len(asked.answers) == 6
    assert asked.kept.sum(dim=1).tolist() == [32] * 6
    assert asked.sensitivity is None
    assert list(asked.answers) == access.answer(samples, max_new_tokens=2)


def test_own_phrases_replace_the_shipped_ones_and_broken_files_are_refused(tmp_path) -> None:
    path = tmp_path / "mine.json"
    mine = {"fi": {"refusals": ["en tieda"], "nonsense": ["?"], "premises": ["{thing}"],
                   "things": ["x"]}}  # fmt: skip
    path.write_text(json.dumps(mine))
    assert load_phrases(path)["fi"].refusals == ("en tieda",)
    mine["fi"]["things"] = []
    path.write_text(json.dumps(mine))
    with pytest.raises(DataError, match="fi"):
        load_phrases(path)
    path.write_text('{"fi": {"refusals": []}}')
    with pytest.raises(DataError, match=r"mine\.json"):
        load_phrases(path)
    with pytest.raises(DataError):
        load_phrases(tmp_path / "none.json")
