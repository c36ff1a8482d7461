"""OK-VQA: questions about COCO images that need outside knowledge."""

from qpriv.errors import DataError

from .coco_vqa import CocoSplit, CocoVQA
from .files import DataFile


class OKVQA(CocoVQA):
    """OK-VQA in its official layout, or as the parquet mirror ``lmms-lab/OK-VQA`` (val only).

    The ten answers are five annotators', each twice. Scores use the stemmed ``answer``, never
    ``raw_answer``; the model trains on the most frequent one, of several the first. What papers
    call its test set is ``val``.

    Reference: Marino et al., "OK-VQA", CVPR 2019. Licence: CC BY 4.0; the pictures keep the
    terms of COCO.

    Args:
        root: Folder or archive with the questions, annotations and ``COCO_*.jpg``, wherever
            below it they lie.
        split: ``train`` or ``val``.
        cap: Largest number of questions, drawn by image over the whole file; all where None.
        seed: Seed of the draw.
        group_field: Field of a record that names its group, such as the patient; a common name
            where None, and the image where there is none, see `qpriv.datasets.groups`.
        on_bad_row: ``stop`` raises the error of a row that cannot be used, ``drop`` leaves such rows
            out, named and counted.

    Raises:
        DataError: If a file is missing or broken, or the files are those of VQA v1, which have
            the same names.
    """

    splits = ("train", "val")
    remedy = "unpack the questions, annotations and images of https://okvqa.allenai.org"
    files = {  # noqa: RUF012
        "train": CocoSplit(
            "OpenEnded_mscoco_train2014_questions.json",
            "mscoco_train2014_annotations.json",
            "train2014",
            "train2014",
        ),
        "val": CocoSplit(
            "OpenEnded_mscoco_val2014_questions.json",
            "mscoco_val2014_annotations.json",
            "val2014",
            "val2014",
        ),
    }

    @classmethod
    def check_annotation(cls, multiple_choice_answer: str | None, file: DataFile) -> None:
        """Check that an annotation has no main answer, which only those of VQA v1 have.

        Raises:
            DataError: If it has.
        """
        if multiple_choice_answer is not None:
            raise DataError(
                "annotations with `multiple_choice_answer` are those of VQA v1, not of OK-VQA",
                where=file.name,
                remedy=cls.remedy,
            )
