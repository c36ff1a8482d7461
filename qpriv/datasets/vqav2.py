"""VQAv2: open questions about COCO images, ten human answers each."""

from .coco_vqa import CocoSplit, CocoVQA


class VQAv2(CocoVQA):
    """VQAv2 in its official layout, or as the parquet mirror ``lmms-lab/VQAv2`` (no train).

    Answers are scored against all ten human ones, see `qpriv.metrics.functional.vqa_accuracy`;
    the model trains on ``multiple_choice_answer``. Questions are closed where the release's
    ``answer_type`` is ``yes/no``. The answers of ``test`` and ``test-dev`` are not public.

    Reference: Goyal et al., "Making the V in VQA Matter", CVPR 2017. Licence: CC BY 4.0; the
    pictures keep the terms of COCO.

    Args:
        root: Folder or archive with the questions, annotations and ``COCO_*.jpg``, wherever
            below it they lie.
        split: ``train``, ``val``, ``test`` or ``test-dev``.
        cap: Largest number of questions, drawn by image over the whole file; all where None.
        seed: Seed of the draw.
        group_field: Field of a record that names its group, such as the patient; a common name
            where None, and the image where there is none, see `qpriv.datasets.groups`.
        on_bad_row: ``stop`` raises the error of a row that cannot be used, ``drop`` leaves such rows
            out, named and counted.

    Raises:
        DataError: If a file is missing or broken.
    """

    splits = ("train", "val", "test", "test-dev")
    remedy = "unpack the questions, annotations and images of https://visualqa.org/download.html"
    files = {  # noqa: RUF012
        "train": CocoSplit(
            "v2_OpenEnded_mscoco_train2014_questions.json",
            "v2_mscoco_train2014_annotations.json",
            "train2014",
            "train",
        ),
        "val": CocoSplit(
            "v2_OpenEnded_mscoco_val2014_questions.json",
            "v2_mscoco_val2014_annotations.json",
            "val2014",
            "validation",
        ),
        "test": CocoSplit("v2_OpenEnded_mscoco_test2015_questions.json", None, "test2015", "test"),
        "test-dev": CocoSplit(
            "v2_OpenEnded_mscoco_test-dev2015_questions.json", None, "test2015", "testdev"
        ),
    }
