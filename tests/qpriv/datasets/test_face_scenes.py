from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from qpriv.datasets import faces
from qpriv.datasets.face_scenes import IDENTITIES, FaceScenes, face_gallery, scenes
from qpriv.datasets.scene_questions import MEMORISATION_QUESTION, NUMBERS
from qpriv.datasets.scenes import COLORS, SIDE
from qpriv.errors import DataError


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def pixels(dataset):
    return np.stack([np.asarray(sample.image.load()) for sample in dataset.samples])


@pytest.mark.parametrize("task", ["scenes", "memorisation"])
def test_an_image_depends_on_seed_and_index_alone(task):
    few, many = (FaceScenes("val", number, 3, task) for number in (4, 9))
    assert np.array_equal(pixels(few), pixels(many)[: len(few)])
    assert few.samples[-1].question == many.samples[len(few) - 1].question
    other = FaceScenes("val", 4, 4, task)
    assert not np.array_equal(pixels(other)[:4], pixels(few)[:4])
    assert not {s.group_id for s in few.samples} & {s.group_id for s in other.samples}


def test_nobody_is_in_two_groups():
    groups = [set(group) for group in (faces.AUXILIARY, faces.MEMBERS, faces.NON_MEMBERS)]
    assert not any(one & other for one, other in combinations(groups, 2))
    assert set.union(*groups) == set(range(100))


@pytest.mark.parametrize("split", IDENTITIES)
def test_a_split_shows_its_own_people(split):
    found = {sample.meta["identity"] for sample in FaceScenes(split, 60).samples} - {None}
    assert len(found) > 10
    assert found <= set(IDENTITIES[split])


@pytest.mark.parametrize("split", ["train", "members"])
def test_boxes_lie_inside_and_apart(split):
    for _, scene, _ in scenes(split, 80):
        boxes = [shape.box for shape in scene.shapes] + ([scene.face] if scene.face else [])
        for left, top, right, bottom in boxes:
            assert 0 <= left < right <= SIDE
            assert 0 <= top < bottom <= SIDE
        assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
        if scene.face:
            assert 24 <= scene.face[2] - scene.face[0] == scene.face[3] - scene.face[1] <= 32


def test_a_shape_has_its_colour_inside_its_box_and_nowhere_else():
    for _, scene, _ in scenes("val", 40):
        for number, shape in enumerate(scene.shapes, start=1):
            rows, columns = np.nonzero(scene.shape_map == number)
            left, top, right, bottom = shape.box
            assert left <= columns.min() <= columns.max() < right
            assert top <= rows.min() <= rows.max() < bottom
            drawn = scene.pixels[rows, columns].astype(float).mean(0)
            assert np.abs(drawn - COLORS[shape.color]).max() < 20


def answer(scene, question):
    """Answer a question from its words and the scene, not from how it was made."""
    words = set(question.text.split())
    if question.kind == "count":
        return NUMBERS[len(scene.shapes)]
    named = [
        shape
        for shape in scene.shapes
        if words & set(COLORS) <= {shape.color}
        and words & {"circle", "rectangle", "triangle"} <= {shape.kind}
    ]
    if question.kind == "exist":
        return "yes" if named else "no"
    (shape,) = named
    return shape.color if question.kind == "color" else shape.kind


def test_answers_are_true_and_boxes_are_of_what_is_asked():
    kinds = Counter()
    for _, scene, questions in scenes("val", 200):
        for question in questions:
            assert question.answer == answer(scene, question), question
            assert set(question.boxes) <= {shape.box for shape in scene.shapes}
            assert question.boxes
            kinds[question.kind, question.answer] += 1
    assert set(kind for kind, _ in kinds) == {"color", "shape", "count", "exist"}
    assert kinds["exist", "yes"] == kinds["exist", "no"] == 200


def test_one_face_in_four_scenes_is_missing():
    shown = [
        bool(sample.sensitive_boxes) for sample in FaceScenes("val", 400, 0, "scenes", 1).samples
    ]
    assert 0.68 < np.mean(shown) < 0.82


def test_memorised_answers_are_random_and_members_look_like_nonmembers():
    members, others = (
        FaceScenes(split, 600, 0, "memorisation") for split in ("members", "nonmembers")
    )
    assert {s.question for s in members.samples} == {MEMORISATION_QUESTION}
    assert all(sample.sensitive_boxes for sample in members.samples)
    assert not {s.image_id for s in members.samples} & {s.key for s in others.samples}
    for value in (lambda s: s.answer, lambda s: s.meta["identity"]):
        one, other = (Counter(map(value, d.samples)) for d in (members, others))
        assert set(one) == set(other)
        observed = np.array([[one[key], other[key]] for key in one])
        expected = observed.sum(1, keepdims=True) / 2
        chi_square = ((observed - expected) ** 2 / expected).sum()
        assert chi_square < len(one) + 4 * np.sqrt(2 * len(one))
    means = [pixels(d).mean((1, 2, 3)) for d in (members, others)]
    spread = np.sqrt(sum(m.var() / len(m) for m in means))
    assert abs(means[0].mean() - means[1].mean()) < 4 * spread


def test_questions_per_image_keeps_a_subset():
    every, some = (FaceScenes("val", 20, 0, "scenes", number) for number in (None, 2))
    assert len(some) == 40
    assert {s.key for s in some.samples} < {s.key for s in every.samples}


def test_training_faces_are_morphed_and_others_are_not():
    def unnamed(split):
        return [
            sample.meta["identity"] is None
            for sample in FaceScenes(split, 100, 0, "memorisation").samples
        ]

    assert 30 < sum(unnamed("train")) < 70
    assert not any(unnamed("members"))


def test_gallery_shows_everybody_an_attacker_has_not_seen():
    pictures = face_gallery()
    assert [sample.meta["identity"] for sample in pictures] == list(faces.UNSEEN)
    assert np.asarray(pictures[0].image.load()).shape == (25, 25, 3)
    assert not set(faces.UNSEEN) & set(faces.AUXILIARY)


def test_unknown_split_names_the_known():
    with pytest.raises(DataError, match="members"):
        FaceScenes("training")
