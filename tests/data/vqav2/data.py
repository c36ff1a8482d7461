"""Fake VQAv2: the official files, and the parquet mirror (no train) with the same questions."""

import json

from tests.data import pictures

IMAGES = {
    "train2014": [458752, 458753, 458754],
    "val2014": [262148, 262149],
    "test2015": [1, 2],
    "test-dev2015": [1],
}
TEXTS = [
    ("What position is he playing?", ["pitcher"] * 6 + ["catcher"] * 4, "what", "other"),
    ("Is it sunny?", ["yes"] * 7 + ["no"] * 3, "is it", "yes/no"),
]


def _ids(subset):
    return [(image, image * 1000 + which, which) for image in IMAGES[subset] for which in (0, 1)]


def questions(subset):
    """Return the questions file of a subset."""
    return {
        "info": {"version": "2.0"},
        "task_type": "Open-Ended",
        "data_type": "mscoco",
        "license": {"url": "http://creativecommons.org/licenses/by/4.0/"},
        "data_subtype": subset,
        "questions": [
            {"image_id": image, "question": TEXTS[which][0], "question_id": qid}
            for image, qid, which in _ids(subset)
        ],
    }


def annotations(subset):
    """Return the annotations file of a subset, in another order than the questions."""
    rows = []
    for image, qid, which in reversed(_ids(subset)):
        _, answers, question_type, answer_type = TEXTS[which]
        rows.append(
            {
                "question_type": question_type,
                "multiple_choice_answer": answers[0],
                "answers": [
                    {"answer": answer, "answer_confidence": "yes", "answer_id": number}
                    for number, answer in enumerate(answers, start=1)
                ],
                "image_id": image,
                "answer_type": answer_type,
                "question_id": qid,
            }
        )
    return {"info": {}, "annotations": rows, "license": {"name": "CC BY 4.0"}}


def write_release(root):
    """Write questions, annotations and images; one picture is grey, as some of COCO's are."""
    for subset, images in IMAGES.items():
        name = root / f"v2_OpenEnded_mscoco_{subset}_questions.json"
        name.write_text(json.dumps(questions(subset)))
        if subset.endswith("2014"):
            path = root / f"v2_mscoco_{subset}_annotations.json"
            path.write_text(json.dumps(annotations(subset)))
        folder = subset.replace("-dev", "")
        for number, image in enumerate(images):
            path = root / folder / f"COCO_{folder}_{image:012d}.jpg"
            pictures.save(path, image, "L" if number == 1 else "RGB")
    return root


def write_mirror(root):
    """Write the files of lmms-lab/VQAv2; the answers of test splits are null."""
    names = {"validation": "val2014", "test": "test2015", "testdev": "test-dev2015"}
    for name, subset in names.items():
        notes = {row["question_id"]: row for row in annotations(subset)["annotations"]}
        rows = []
        for question in questions(subset)["questions"]:
            note = dict(notes[question["question_id"]])
            if subset != "val2014":
                note = dict.fromkeys(note) | {"answers": None}
            image = pictures.cell(question["image_id"], "L")
            rows.append(note | question | {"image": image})
        pictures.write_parquet(root / "data" / f"{name}-00000-of-00001.parquet", rows)
    return root
