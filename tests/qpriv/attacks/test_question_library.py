"""The library of plain questions: large, the same every time, in the data set's own words."""

from dataclasses import replace

from datamodules import FaceScenes
from qpriv.attacks.question_library import (
    LEAST,
    library_words,
    question_library,
    vocabulary,
    words_of,
)
from tests.tiny_models import random_samples

SCENES = FaceScenes(num_auxiliary=120).auxiliary()


def test_a_library_holds_the_data_sets_questions_and_others_in_its_words() -> None:
    library = question_library(SCENES, 400)
    assert len(set(library)) == len(library) == 400 >= LEAST
    own = {sample.question for sample in SCENES}
    assert own <= set(library)
    assert all(question.endswith(" ?") for question in library)
    known = set(vocabulary(SCENES))
    framed = [question for question in library if question not in own]
    assert sum(bool(known & set(words_of(question))) for question in framed) > 200


def test_a_library_depends_on_nothing_but_the_samples() -> None:
    assert question_library(SCENES) == question_library(SCENES[::-1])
    few = random_samples(8)  # four questions of few words: pairs fill it up
    assert len(question_library(few, LEAST)) == LEAST


def test_common_questions_leave_room_for_others() -> None:
    samples = [
        replace(SCENES[0], question=f"Is number {number} there?", answer="yes")
        for number in range(1000)
    ]
    library = question_library(samples, 400)
    assert sum(question.startswith("Is number") for question in library) == 200
    assert "is there a number?" in library


def test_words_are_those_of_questions_and_answers() -> None:
    assert {"teal", "rectangle", "two"} <= set(vocabulary(SCENES))
    assert vocabulary(SCENES, 3) == vocabulary(SCENES)[:3]
    words = library_words(["who is this person ?"], SCENES)
    assert {"who", "person", "teal"} <= set(words) and len(set(words)) == len(words)
