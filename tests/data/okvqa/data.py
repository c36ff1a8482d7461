"""Fake OK-VQA: the official files, and the parquet mirror (val only)."""

import json

from tests.data import pictures

IMAGES = {"train2014": [51606, 51607], "val2014": [297147]}
ANSWERS = ["race"] * 4 + ["motocross"] * 2 + ["ride"] * 2 + ["bike"] * 2
RAW = ["racing"] * 4 + ["motocross"] * 2 + ["riding"] * 2 + ["biking"] * 2


def questions(subset):
    """Return the questions file of a subset."""
    return {
        "info": {"description": "OK-VQA"},
        "data_subtype": subset,
        "questions": [
            {"image_id": image, "question": "What sport is it?", "question_id": image * 10 + 5}
            for image in IMAGES[subset]
        ],
    }


def annotations(subset):
    """Return the annotations file; there is no ``multiple_choice_answer``."""
    return {
        "annotations": [
            {
                "image_id": image,
                "answer_type": "other",
                "question_type": "four",
                "question_id": image * 10 + 5,
                "answers": [
                    {
                        "answer_id": number,
                        "raw_answer": raw,
                        "answer_confidence": "yes",
                        "answer": answer,
                    }
                    for number, (raw, answer) in enumerate(zip(RAW, ANSWERS, strict=True), start=1)
                ],
                "confidence": 3,
            }
            for image in IMAGES[subset]
        ]
    }


def write_release(root):
    """Write questions, annotations and images."""
    for subset, images in IMAGES.items():
        path = root / f"OpenEnded_mscoco_{subset}_questions.json"
        path.write_text(json.dumps(questions(subset)))
        path = root / f"mscoco_{subset}_annotations.json"
        path.write_text(json.dumps(annotations(subset)))
        for image in images:
            pictures.save(root / subset / f"COCO_{subset}_{image:012d}.jpg", image)
    return root


def write_mirror(root):
    """Write the one file of lmms-lab/OK-VQA: ids are strings, there is no image id."""
    rows = [
        {
            "question_id": str(question["question_id"]),
            "image": pictures.cell(question["image_id"]),
            "question": question["question"],
            "answers": ANSWERS,
            "question_type": "four",
            "answer_type": "other",
        }
        for question in questions("val2014")["questions"]
    ]
    pictures.write_parquet(root / "data" / "val2014-00000-of-00001.parquet", rows)
    return root
