"""`FaceScenes`: drawn scenes with a real face in them, the embedded data set."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.random import Generator

from . import faces
from .base import VQADataset
from .sample import AnswerType, ArrayImage, VQASample
from .scene_questions import Question, ask, memorise
from .scenes import Scene, draw_scene

IDENTITIES = {
    "train": faces.AUXILIARY,
    "members": faces.MEMBERS,
    "nonmembers": faces.NON_MEMBERS,
    "val": faces.NON_MEMBERS,
    "test": faces.NON_MEMBERS,
}
"""Whose faces a split shows: nobody is in two of the three groups."""

Task = Literal["scenes", "memorisation"]


class FaceScenes(VQADataset):
    """Scenes of 64 x 64 pixels: shapes to ask about and, in three of four, a face to protect.

    The face answers no question, so a good pruner can drop it at no cost. Every sample knows the
    boxes its question is about (``relevant_boxes``), the face's box (``sensitive_boxes``), and in
    ``meta`` the ``question_type`` and ``identity``.

    ``task="memorisation"`` asks one question an image, *what color is the person ?*, whose answer
    is a random colour word: only a model that has memorised the sample knows it. There every
    image has a face, and members and non-members show the same sixty people, so that nothing but
    the training tells them apart.

    Image ``i`` of a split depends on the seed and ``i`` alone, not on how many are drawn.

    Args:
        split: ``train`` (auxiliary people: pre-training, and what an attacker holds), ``members``,
            ``nonmembers``, ``val`` or ``test`` (people nobody trained on).
        num_images: Number of images; about 1 ms each.
        seed: Chooses another world.
        task: ``scenes``, or ``memorisation`` for membership attacks.
        questions_per_image: Keep so many random questions of each image's five to seven; all
            where None.
    """

    splits = tuple(IDENTITIES)

    def __init__(
        self,
        split: str = "train",
        num_images: int = 1000,
        seed: int = 0,
        task: Task = "scenes",
        questions_per_image: int | None = None,
    ) -> None:
        self.check_split(split)
        drawn = scenes(split, num_images, seed, task)
        samples = [
            _sample(split, f"{task}-{seed}-{index}", number, scene, question)
            for index, scene, questions in drawn
            for number, question in _some(questions, questions_per_image, seed, index)
        ]
        super().__init__(split, samples)


def scenes(
    split: str, num_images: int, seed: int = 0, task: Task = "scenes"
) -> Iterator[tuple[int, Scene, tuple[Question, ...]]]:
    """Yield index, scene and questions of every image of a split, see `FaceScenes`."""
    memorisation = task == "memorisation"
    shared = memorisation and split != "train"
    identities = faces.UNSEEN if shared else IDENTITIES[split]
    for index in range(num_images):
        rng = _rng(f"{task}/{split}", seed, index)
        scene = draw_scene(
            rng, identities, face_share=1.0 if memorisation else 0.75, augment=split == "train"
        )
        yield index, scene, (memorise(rng, scene),) if memorisation else ask(rng, scene)


def face_gallery(identities: Sequence[int] = faces.UNSEEN) -> list[VQASample]:
    """Return one picture of each person, for re-identification: the face as it is stored.

    The whole picture, grey and 25 pixels wide, is the sensitive box.
    """
    return [_portrait(identity) for identity in identities]


def _portrait(identity: int) -> VQASample:
    grey = faces.gallery([identity])[0]
    return VQASample(
        dataset="FaceScenes",
        split="gallery",
        qid=f"person-{identity}",
        image_id=f"person-{identity}",
        group_id=f"gallery/person-{identity}",
        image=ArrayImage(np.stack([grey] * 3, axis=-1)),
        question="who is this ?",
        answer=str(identity),
        answers=(str(identity),),
        answer_type=AnswerType.OPEN,
        relevant_boxes=None,
        sensitive_boxes=((0, 0, faces.FACE_SIZE, faces.FACE_SIZE),),
        meta={"question_type": "identity", "identity": identity},
    )


def _rng(stream: str, seed: int, index: int) -> Generator:
    return np.random.default_rng([zlib.crc32(stream.encode()), seed, index])


def _some(
    questions: Sequence[Question], number: int | None, seed: int, index: int
) -> list[tuple[int, Question]]:
    if number is None:
        return list(enumerate(questions))
    order = _rng("questions", seed, index).permutation(len(questions))[:number]
    return [(int(position), questions[position]) for position in sorted(order)]


def _sample(split: str, image_id: str, number: int, scene: Scene, question: Question) -> VQASample:
    return VQASample(
        dataset="FaceScenes",
        split=split,
        qid=f"{image_id}-{number}",
        image_id=image_id,
        group_id=f"{split}/{image_id}",
        image=ArrayImage(scene.pixels),
        question=question.text,
        answer=question.answer,
        answers=(question.answer,),
        answer_type=AnswerType.CLOSED if question.kind == "exist" else AnswerType.OPEN,
        relevant_boxes=question.boxes,
        sensitive_boxes=(scene.face,) if scene.face else (),
        meta={"question_type": question.kind, "identity": scene.identity},
    )
