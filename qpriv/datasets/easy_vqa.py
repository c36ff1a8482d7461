"""`EasyVQA`: the public easy-vqa set, one drawn shape an image, shipped in its own package."""

from pathlib import Path

import easy_vqa

from .base import VQADataset
from .reading import infer_answer_type
from .sample import AnswerType, FileImage, VQASample

VAL_EVERY = 10
"""Every tenth training image validates; the release has no split for it."""


class EasyVQA(VQADataset):
    """Questions about the shape and colour of one drawn shape (V. Zhou, 2019, MIT licence).

    The official files are those of the ``easy-vqa`` package: 4,000 images with 38,575 questions
    to train, 1,000 with 9,673 to test, thirteen answers. ``train`` and ``val`` share the official
    training images without overlap. Nothing in it is sensitive, and it has no boxes.

    Args:
        split: ``train``, ``val`` or ``test``.
    """

    def __init__(self, split: str = "train") -> None:
        self.check_split(split)
        official = "test" if split == "test" else "train"
        questions, paths = _read(official)
        samples = [
            _sample(split, official, number, text, answer, image_id, paths[image_id])
            for number, (text, answer, image_id) in enumerate(questions)
            if split == "test" or (image_id % VAL_EVERY == 0) == (split == "val")
        ]
        super().__init__(split, samples)


def _read(official: str) -> tuple[list[tuple[str, str, int]], dict[int, str]]:
    """Return the questions of an official split and where its images are."""
    if official == "test":
        questions, paths = easy_vqa.get_test_questions(), easy_vqa.get_test_image_paths()
    else:
        questions, paths = easy_vqa.get_train_questions(), easy_vqa.get_train_image_paths()
    return list(zip(*questions, strict=True)), paths


def _sample(
    split: str, official: str, number: int, text: str, answer: str, image_id: int, path: str
) -> VQASample:
    return VQASample(
        dataset="EasyVQA",
        split=split,
        qid=f"{official}-{number}",
        image_id=f"{official}-{image_id}",
        group_id=f"{official}-{image_id}",
        image=FileImage(Path(path)),
        question=text,
        answer=answer,
        answers=(answer,),
        answer_type=infer_answer_type(answer),
        sensitive_boxes=(),
        meta={"question_type": _question_type(text, answer)},
    )


def _question_type(text: str, answer: str) -> str:
    if infer_answer_type(answer) is AnswerType.CLOSED:
        return "exist"
    return "color" if "color" in text else "shape"
